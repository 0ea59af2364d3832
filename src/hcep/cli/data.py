"""`hcep data`: fetch a public image dataset, or write the bundled sample."""

from pathlib import Path
from typing import Annotated

from hcep import datasets
from hcep.cli import options as opt
from hcep.cli.console import Console, escape, say, say_json
from hcep.cli.options import argument, more, option
from hcep.errors import HCEPError


def data(
    name: Annotated[
        str | None, argument("Dataset, or `sample`; without a name, list the datasets.", metavar="NAME")
    ] = None,
    *,
    folder: Annotated[
        Path | None,
        option("Folder to unpack the dataset into (for ImageNet: the folder that has it).", "--folder FOLDER", "-d"),
    ] = None,
    encoder: opt.Encoder = None,
    output: opt.OptionalOutput = None,
    as_json: opt.Json = False,
    mirror: Annotated[str | None, more("URL of a folder that has the archives.", "--mirror URL")] = None,
) -> None:
    """Fetch a public image dataset, or write the bundled sample.

    With --encoder and --output, the images are also encoded into a store. The sample has embeddings, a tree, photos and
    sentences to try the other commands on. Downloads are checked and unpacked, and resume after an interruption. You
    must download ImageNet yourself; --folder says where it is.
    """
    from hcep.datasets.download import ARCHIVES
    from hcep.datasets.sample_data import write_sample

    if name is None:
        if as_json:
            say_json([{"name": n, "title": a.title, "url": a.url, "n_bytes": a.n_bytes} for n, a in ARCHIVES.items()])
            return
        say(f"{'sample':16} {'':>10}  included in the package: embeddings, a tree, photos and sentences")
        for known, archive in ARCHIVES.items():
            say(f"{known:16} {archive.n_bytes / 1e6:7,.0f} MB  {archive.title}")
        say(f"{'imagenet':16} {'':>10}  ImageNet: download it yourself and give its folder with --folder")
        return
    if (encoder is None) != (output is None):
        raise HCEPError("--encoder and --output must be given together: the encoder and the store to write")
    if name == "sample":
        place = write_sample(folder or name)
    else:
        place = datasets.fetch(name, folder, mirror=mirror, progress=not as_json)
    facts: dict[str, object] = {"dataset": name, "folder": place}
    if encoder is not None and output is not None:
        photos = place / "photos" if name == "sample" else place
        report = datasets.encode_images(photos, encoder, output, progress=not as_json)
        facts |= {"store": output, "n_encoded": report.n_encoded, "n_skipped": report.n_skipped}
    if as_json:
        say_json(facts)
        return
    title = ARCHIVES[name].title if name in ARCHIVES else "embeddings, a tree, photos and sentences to try commands on"
    Console(soft_wrap=True).print(f"[bold]{escape(str(place))}[/]: {escape(title)}", highlight=False)
    if output is not None:
        say(f"{output}: {facts['n_encoded']:,} encoded, {facts['n_skipped']:,} skipped")
