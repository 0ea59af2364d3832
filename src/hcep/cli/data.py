"""`hcep data`: public image datasets, fetched and encoded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hcep import datasets
from hcep._escape import markup as escape
from hcep.cli.console import Console, say, say_json
from hcep.cli.options import Json, Preprocessing, argument, option
from hcep.errors import HCEPError


def data(
    name: Annotated[str | None, argument("Dataset, or `sample`; without one, a list of them.")] = None,
    *,
    folder: Annotated[
        Path | None, option("Where it is unpacked to; of imagenet, where it is.", "--folder", "-d")
    ] = None,
    mirror: Annotated[str | None, option("Address of a folder with the archives.")] = None,
    encoder: Annotated[str | None, option("Encode it, too, into --output.", "--encoder", "-e")] = None,
    output: Annotated[Path | None, option("Folder of the store.", "--output", "-o")] = None,
    preprocessing: Preprocessing = None,
    as_json: Json = False,
) -> None:
    """Fetch a public image dataset, check it, unpack it; with --encoder, encode it into a store.

    The sample comes with the package: embeddings, a tree, photos, sentences, to try the other commands on. A run that
    is stopped goes on where it was. Of ImageNet, which everybody must fetch for themselves, --folder says where it is.
    """
    from hcep.datasets.download import ARCHIVES

    if name is None:
        keys = ("title", "url", "n_bytes")
        if as_json:
            say_json([{"name": n} | {key: getattr(archive, key) for key in keys} for n, archive in ARCHIVES.items()])
            return
        say(f"{'sample':16} {'':>10}  comes with the package: embeddings, a tree, photos, sentences")
        for known, archive in ARCHIVES.items():
            say(f"{known:16} {archive.n_bytes / 1e6:7,.0f} MB  {archive.title}")
        say(f"{'imagenet':16} {'':>10}  ImageNet: fetch it yourself, then --folder says where it is")
        return
    if (encoder is None) != (output is None):
        raise HCEPError("--encoder and --output go together: what to encode with, and the folder of the store")
    if name == "sample":
        place = datasets.write_sample(folder or name)
    else:
        place = datasets.fetch(name, folder, mirror=mirror, progress=not as_json)
    facts: dict[str, object] = {"dataset": name, "folder": str(place)}
    if encoder is not None and output is not None:
        photos = place / "photos" if name == "sample" else place
        report = datasets.encode_images(photos, encoder, output, preprocessing=preprocessing, progress=not as_json)
        facts |= {"store": str(output), "n_encoded": report.n_encoded, "n_skipped": report.n_skipped}
    if as_json:
        say_json(facts)
        return
    title = ARCHIVES[name].title if name in ARCHIVES else name
    Console(soft_wrap=True).print(f"[bold]{escape(str(place))}[/]: {escape(title)}", highlight=False)
    if output is not None:
        say(f"{output}: {facts['n_encoded']:,} encoded, {facts['n_skipped']:,} skipped")
