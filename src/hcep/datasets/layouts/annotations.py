"""Images with labels and boxes in the files of other tools (`hcep.formats`), found in the folder beside the file."""

import os
import re
from collections import Counter
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlparse

from hcep.datasets.image_dataset import DatasetError, ImageDataset, canonical_split, choose_splits
from hcep.datasets.layouts.listing import LayoutOptions, image_files
from hcep.embeddings.images import not_used
from hcep.errors import quote, quoted
from hcep.formats import FORMATS, format_of, read_annotations
from hcep.formats.label_studio import LOCAL, UPLOAD, path_in
from hcep.hierarchy.names import loose_key

ON_THE_WEB = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


def detect(source: Path) -> bool:
    name = format_of(source)
    return name is not None and bool(FORMATS[name].holds & {"labels", "boxes"})


def read(source: Path, options: LayoutOptions) -> ImageDataset:
    """List the images, or the boxes in them; a file that is not there stays in the list, and is skipped later."""
    annotations = read_annotations(source, options.boxes)
    left_out = {} if options.unlabelled else annotations.left_out
    regions = [one for one in annotations.regions if one.id not in left_out]
    unused = [*annotations.unused, *left_out.items()]
    if unused and not regions:
        raise DatasetError(
            f"{str(source)!r}: {not_used([reason for _, reason in unused], len(unused), 'images or boxes')}"
        )
    counts = Counter(one.id for one in regions)
    twice = next((one.file for one in regions if counts[one.id] > 1), None)
    if twice is not None:
        raise DatasetError(f"{str(source)!r} lists {quote(twice)} more than once; list each image once")
    splits = [None if one.split is None else canonical_split(one.split) for one in regions]
    wanted = [] if options.split is None else choose_splits(splits, options.split, source)
    rows = [row for row, split in enumerate(splits) if not wanted or split in wanted]
    folder = FolderOfFiles(source if source.is_dir() else source.parent)
    files = {name: folder.find(name) for name in dict.fromkeys(regions[row].file for row in rows)}
    if files and not any(os.path.isfile(folder.path / file) for file in files.values()):
        raise DatasetError(
            f"no image that {str(source)!r} lists is below {str(folder.path)!r}: "
            f"{quoted(files, 2)}; put the file into the folder of the images, or beside it"
        )
    return ImageDataset(
        folder.path,
        [files[regions[row].file] for row in rows],
        [regions[row].id for row in rows],
        [regions[row].label for row in rows],
        [splits[row] for row in rows],
        boxes=[regions[row].box for row in rows],
        unused=unused,
    )


class FolderOfFiles:
    """Finds the files that annotations name, which may have been written on another machine or for another folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def find(self, name: str) -> str:
        """The path of a file relative to the folder; the name itself if there is no such file.

        A name from elsewhere, also an address on the web, matches the file with which it agrees from the end on, up to
        the start of one of them; case, blanks, underscores, hyphens and the form of accents do not matter. Raises
        DatasetError if several files match, or if the name leads out of the folder.
        """
        local = (
            path_in(name) if name.startswith((LOCAL, UPLOAD)) else name
        )  # also in files that Label Studio exports as COCO
        local = unquote(urlparse(name).path) if ON_THE_WEB.match(name) else local
        parts = [part for part in re.split(r"[/\\]+", local) if part not in ("", ".")]
        if ".." in parts:
            raise DatasetError(
                f"the file name {quote(name)} points outside the folder {str(self.path)!r}; use names inside it"
            )
        parts = parts[1:] if parts and re.fullmatch(r"[A-Za-z]:", parts[0]) else parts
        relative = "/".join(parts)
        if not parts or os.path.isfile(self.path / relative):
            return relative
        candidates = self._by_name.get(loose_key(parts[-1]), [])
        agreeing = {path: n for path in candidates if (n := _agreement(parts, path.split("/")))}
        best = [path for path, n in agreeing.items() if n == max(agreeing.values())]
        exact = [path for path in best if f"/{relative}".endswith(f"/{path}") or f"/{path}".endswith(f"/{relative}")]
        best = exact or best
        if len(best) > 1:
            raise DatasetError(f"the file {quote(name)} may be any of {quoted(best)}; give its path within the folder")
        return best[0] if best else relative

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        paths: dict[str, list[str]] = {}
        for file in image_files(self.path):
            paths.setdefault(loose_key(file.rpartition("/")[2]), []).append(file)
        return paths


def _agreement(name: list[str], path: list[str]) -> int:
    """How many parts agree, from the end to the start of the shorter one; 0 if any of these differs."""
    n = min(len(name), len(path))
    return n if list(map(loose_key, name[-n:])) == list(map(loose_key, path[-n:])) else 0
