"""`hcep encode`: images into an embedding store."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hcep._escape import markup as escape
from hcep.cli.config import Config, save_resolved
from hcep.cli.console import Console, say, show_notes
from hcep.cli.hierarchy.files import Options, parsed
from hcep.cli.options import Preprocessing, Ray, Strict, argument, option

if TYPE_CHECKING:
    from hcep.embeddings.store.encoding import EncodeReport


def encode(
    context: typer.Context,
    *,
    images: Annotated[Path, argument("Folder of images (class/xxx.jpg), or a table with paths and labels.")],
    encoder: Annotated[
        str | None, option("The built-in one by default; see `hcep encoders`.", "--encoder", "-e")
    ] = None,
    output: Annotated[Path, option("Folder of the store.", "--output", "-o")],
    preprocessing: Preprocessing = None,
    layout: Annotated[str | None, option("How the images are laid out; found out by default.")] = None,
    split: Annotated[str | None, option("Encode only this split.")] = None,
    path_column: Annotated[str, option("Column of a table.")] = "path",
    label_column: Annotated[str, option("Column of a table.")] = "label",
    batch_size: Annotated[int, option("Images the encoder takes at a time.", min=1)] = 64,
    shard_size: Annotated[int, option("Images per file of the store; a kill loses at most one file.", min=1)] = 1024,
    dtype: Annotated[Literal["float16", "float32"], option("Precision on disk.")] = "float16",
    workers: Annotated[int | None, option("Threads that decode images; with --ray, actors.", min=1)] = None,
    device: Annotated[str | None, option("cpu, cuda, cuda:1; a GPU where there is one by default.")] = None,
    strict: Strict = False,
    fresh: Annotated[bool, option("Encode everything anew instead of resuming.")] = False,
    keep_missing: Annotated[bool, option("Keep the vectors of images that are no longer there.")] = False,
    hierarchy: Annotated[str | None, option("Say which images and classes are not in both; as for `hcep fit`.")] = None,
    options: Options = None,
    ray: Ray = None,
    as_json: Annotated[bool, option("Print the report as JSON and nothing else.", "--json")] = False,
    config: Config = None,
) -> None:
    """Encode a folder of images into a store; run it again to resume, or to bring the store up to date.

    What is new is encoded; an image that moved to another class takes its label along; one that is gone leaves.
    Images that cannot be read are skipped and listed with the reason. A killed run loses at most the shard under way.
    """
    from hcep import distributed
    from hcep.datasets import encode_images, find_hierarchy, read_images
    from hcep.datasets.photo_checks import copy_notes, folder_notes, tree_notes
    from hcep.embeddings import EmbeddingStore, load_encoder
    from hcep.embeddings.encoders import DEFAULT

    listing: dict[str, Any] = {"layout": layout, "split": split}
    listing |= {"path_column": path_column, "label_column": label_column}
    kind: dict[str, Any] = {"preprocessing": preprocessing, "device": device}
    work: dict[str, Any] = {"batch_size": batch_size, "shard_size": shard_size, "dtype": dtype, "n_workers": workers}
    work |= {"strict": strict, "progress": not as_json, "resume": not fresh}
    if ray is not None:
        from hcep.distributed.places import is_url

        given = images if is_url(images) else read_images(images, **listing)
        loading = partial(load_encoder, encoder or DEFAULT, **kind)
        report = distributed.encode(given, loading, output, address=ray, **work)
        _show(report, getattr(given, "layout", "folder"), output, as_json)
        return
    dataset = read_images(images, **listing)
    try:
        report = encode_images(dataset, encoder, output, remove_vanished=not keep_missing, **kind, **work)
    except KeyboardInterrupt:
        say(f"stopped; what was encoded is in {output}, run the same command again to resume", err=True)
        raise typer.Exit(130) from None
    save_resolved(context, output)
    show_notes([*folder_notes(dataset), *copy_notes(EmbeddingStore(output))])
    if hierarchy is not None and (tree := find_hierarchy(hierarchy, **parsed(options))) is not None:
        show_notes(tree_notes(dataset.labels, tree))
    _show(report, dataset.layout, output, as_json)


def _show(report: EncodeReport, layout: str, output: Path, as_json: bool) -> None:
    skipped = [{"id": image.id, "reason": image.reason} for image in report.skipped]
    if as_json:
        keys = ("n_encoded", "n_reused", "n_skipped", "n_relabelled", "n_removed", "seconds")
        numbers = {key: getattr(report, key) for key in keys} | {"skipped": skipped}
        say(json.dumps({"store": str(output), "layout": layout, **numbers}, indent=2, ensure_ascii=False))
        return
    console = Console()
    console.print(
        f"[bold]{escape(str(output))}[/]: {report.n_encoded:,} new ({report.images_per_second:,.0f} images/s), "
        f"{report.n_reused:,} reused, {report.n_relabelled:,} relabelled, {report.n_removed:,} gone, "
        f"{report.n_skipped:,} skipped; layout {layout}"
    )
    for image in skipped[:10]:
        console.print(f"  [yellow]skipped[/] {escape(image['id'])}: {escape(image['reason'])}")
    if len(skipped) > 10:
        console.print(f"  … and {len(skipped) - 10:,} more, all listed in the store's manifest")
