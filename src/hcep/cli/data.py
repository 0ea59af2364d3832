"""`hcep data`: public image datasets, fetched and encoded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hcep._escape import markup as escape
from hcep.cli.console import Console, say
from hcep.cli.encode import Preprocessing


def data(
    name: Annotated[str | None, typer.Argument(help="Dataset, or `sample`; without one, a list of them.")] = None,
    *,
    folder: Annotated[
        Path | None, typer.Option("--folder", "-d", help="Where it is unpacked to; of imagenet, where it is.")
    ] = None,
    mirror: Annotated[str | None, typer.Option(help="Address of a folder with the archives.")] = None,
    encoder: Annotated[str | None, typer.Option("--encoder", "-e", help="Encode it, too, into --output.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder of the store.")] = None,
    preprocessing: Preprocessing = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Fetch a public image dataset, check it, unpack it; with --encoder, encode it into a store.

    The sample comes with the package: embeddings, a tree, photos, sentences, to try the other commands on.

    A run that is stopped goes on where it was. Of ImageNet, which everybody must fetch for themselves, --folder says
    where it is.
    """
    from hcep.datasets import encode_images, fetch, write_sample
    from hcep.datasets.download import ARCHIVES
    from hcep.errors import HCEPError

    if name is None:
        _list(as_json)
        return
    if (encoder is None) != (output is None):
        raise HCEPError("--encoder and --output go together: what to encode with, and the folder of the store")
    is_sample = name == "sample"
    place = write_sample(folder or name) if is_sample else fetch(name, folder, mirror=mirror, progress=not as_json)
    facts: dict[str, object] = {"dataset": name, "folder": str(place)}
    if encoder is not None and output is not None:
        images = place / "photos" if is_sample else place
        report = encode_images(images, encoder, output, preprocessing=preprocessing, progress=not as_json)
        facts |= {"store": str(output), "n_encoded": report.n_encoded, "n_skipped": report.n_skipped}
    if as_json:
        say(json.dumps(facts, indent=2))
        return
    title = ARCHIVES[name].title if name in ARCHIVES else "the sample" if is_sample else name
    Console(soft_wrap=True).print(f"[bold]{escape(str(place))}[/]: {escape(title)}", highlight=False)
    if output is not None:
        say(f"{output}: {facts['n_encoded']:,} encoded, {facts['n_skipped']:,} skipped")


def _list(as_json: bool) -> None:
    from hcep.datasets.download import ARCHIVES

    if as_json:
        records = [
            {"name": name, "title": archive.title, "url": archive.url, "n_bytes": archive.n_bytes}
            for name, archive in ARCHIVES.items()
        ]
        say(json.dumps(records, indent=2))
        return
    say(f"{'sample':16} {'':>10}  comes with the package: embeddings, a tree, photos, sentences")
    for name, archive in ARCHIVES.items():
        say(f"{name:16} {archive.n_bytes / 1e6:7,.0f} MB  {archive.title}")
    say(f"{'imagenet':16} {'':>10}  ImageNet: fetch it yourself, then --folder says where it is")
