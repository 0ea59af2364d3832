"""`hcep encode`, `hcep data`, `hcep store`: images into a store of embeddings, fetched where they are public."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hcep import datasets, embeddings, ray as distributed
from hcep._checks import escape_markup as escape
from hcep.cli import options as opt
from hcep.cli.console import Console, say, say_json, show_notes
from hcep.cli.options import argument, option
from hcep.errors import HCEPError

app = opt.group("Check and mend an embedding store.")
Store = Annotated[Path, argument("Folder of a store that `hcep encode` made.")]


def data(
    name: Annotated[str | None, argument("Dataset, or `sample`; without one, a list of them.")] = None,
    *,
    folder: Annotated[Path | None, option("Where it is unpacked; of imagenet, where it is.", "--folder", "-d")] = None,
    mirror: Annotated[str | None, option("Address of a folder with the archives.")] = None,
    encoder: Annotated[str | None, option("Encode it, too, into --output.", "--encoder", "-e")] = None,
    output: Annotated[Path | None, option("Folder of the store.", "--output", "-o")] = None,
    preprocessing: opt.Preprocessing = None,
    as_json: opt.Json = False,
) -> None:
    """Fetch a public image dataset, check it, unpack it; with --encoder, encode it into a store.

    The sample comes with the package: embeddings, a tree, photos, sentences, to try the other commands on. A run that
    is stopped goes on where it was. Of ImageNet, which everybody must fetch for themselves, --folder says where it is.
    """
    from hcep.datasets.download import ARCHIVES

    if name is None:
        if as_json:
            say_json([{"name": n, "title": a.title, "url": a.url, "n_bytes": a.n_bytes} for n, a in ARCHIVES.items()])
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
    facts: dict[str, object] = {"dataset": name, "folder": place}
    if encoder is not None and output is not None:
        photos = place / "photos" if name == "sample" else place
        report = datasets.encode_images(photos, encoder, output, preprocessing=preprocessing, progress=not as_json)
        facts |= {"store": output, "n_encoded": report.n_encoded, "n_skipped": report.n_skipped}
    if as_json:
        say_json(facts)
        return
    title = ARCHIVES[name].title if name in ARCHIVES else name
    Console(soft_wrap=True).print(f"[bold]{escape(str(place))}[/]: {escape(title)}", highlight=False)
    if output is not None:
        say(f"{output}: {facts['n_encoded']:,} encoded, {facts['n_skipped']:,} skipped")


def encode(
    context: typer.Context,
    *,
    images: Annotated[Path, argument("Folder of images (class/xxx.jpg), or a table with paths and labels.")],
    encoder: Annotated[str | None, option("Built in by default; see `hcep encoders`.", "--encoder", "-e")] = None,
    output: Annotated[Path, option("Folder of the store.", "--output", "-o")],
    preprocessing: opt.Preprocessing = None,
    layout: Annotated[str | None, option("How the images are laid out; found out by default.")] = None,
    split: Annotated[str | None, option("Encode only this split.")] = None,
    path_column: Annotated[str, option("Column of a table.")] = "path",
    label_column: Annotated[str, option("Column of a table.")] = "label",
    batch_size: Annotated[int, option("Images the encoder takes at a time.", min=1)] = 64,
    shard_size: Annotated[int, option("Images per file of the store; a kill loses at most one file.", min=1)] = 1024,
    dtype: Annotated[Literal["float16", "float32"], option("Precision on disk.")] = "float16",
    workers: Annotated[int | None, option("Threads that decode images; with --ray, actors.", min=1)] = None,
    device: Annotated[str | None, option("cpu, cuda, cuda:1; a GPU where there is one by default.")] = None,
    strict: opt.Strict = False,
    fresh: Annotated[bool, option("Encode everything anew instead of resuming.")] = False,
    keep_missing: Annotated[bool, option("Keep the vectors of images that are no longer there.")] = False,
    hierarchy: Annotated[str | None, option("Say which images and classes are not in both; as for `hcep fit`.")] = None,
    options: opt.ReaderOptions = None,
    ray: opt.Ray = None,
    as_json: opt.Json = False,
    config: opt.Config = None,
) -> None:
    """Encode a folder of images into a store; run it again to resume, or to bring the store up to date.

    What is new is encoded; an image that moved to another class takes its label along; one that is gone leaves.
    Images that cannot be read are skipped and listed with the reason. A killed run loses at most the shard under way.
    """
    from hcep.datasets.encoding import copy_notes, folder_notes, tree_notes
    from hcep.embeddings.encoders import DEFAULT
    from hcep.ray.places import is_url

    listing: dict[str, Any] = {"layout": layout, "split": split}
    listing |= {"path_column": path_column, "label_column": label_column}
    kind: dict[str, Any] = {"preprocessing": preprocessing, "device": device}
    work: dict[str, Any] = {"batch_size": batch_size, "shard_size": shard_size, "dtype": dtype, "n_workers": workers}
    work |= {"strict": strict, "progress": not as_json, "resume": not fresh}
    given: Any = images if ray is not None and is_url(images) else datasets.read_images(images, **listing)
    if ray is not None:
        loading = partial(embeddings.load_encoder, encoder or DEFAULT, **kind)
        report = distributed.encode(given, loading, output, address=ray, **work)
    else:
        try:
            report = datasets.encode_images(given, encoder, output, remove_vanished=not keep_missing, **kind, **work)
        except KeyboardInterrupt:
            say(f"stopped; what was encoded is in {output}, run the same command again to resume", err=True)
            raise typer.Exit(130) from None
        opt.save_resolved(context, output)
        show_notes([*folder_notes(given), *copy_notes(embeddings.EmbeddingStore(output))])
        tree = hierarchy and datasets.find_hierarchy(hierarchy, **opt.reader_options(options))
        show_notes(tree_notes(given.labels, tree) if tree else ())
    found = getattr(given, "layout", "folder")
    skipped = [{"id": image.id, "reason": image.reason} for image in report.skipped]
    if as_json:
        keys = ("n_encoded", "n_reused", "n_skipped", "n_relabelled", "n_removed", "seconds")
        numbers = {key: getattr(report, key) for key in keys}
        say_json({"store": output, "layout": found, **numbers, "skipped": skipped})
        return
    console = Console()
    console.print(
        f"[bold]{escape(str(output))}[/]: {report.n_encoded:,} new ({report.images_per_second:,.0f} images/s), "
        f"{report.n_reused:,} reused, {report.n_relabelled:,} relabelled, {report.n_removed:,} gone, "
        f"{report.n_skipped:,} skipped; layout {found}"
    )
    for image in skipped[:10]:
        console.print(f"  [yellow]skipped[/] {escape(image['id'])}: {escape(image['reason'])}")
    if len(skipped) > 10:
        console.print(f"  … and {len(skipped) - 10:,} more, all listed in the store's manifest")


@app.command()
def check(store: Store, as_json: opt.Json = False) -> None:
    """Read every file of a store and compare it with what was written; exit code 1 where something is damaged."""
    opened = embeddings.EmbeddingStore(store)
    damage = opened.damaged_shards()
    if not damage:
        try:
            opened.verify()
        except HCEPError as error:
            damage = {"copy": str(error)}
    if as_json:
        say_json({"store": store, "n_images": len(opened), "damaged": damage})
    else:
        for file, what in damage.items():
            say(f"damaged: {file}: {what}")
        told = "repair with: hcep store repair" if damage else f"{len(opened.shards):,} files, all as written"
        say(f"{store}: {len(opened):,} images; {told}")
    raise typer.Exit(int(bool(damage)))


@app.command()
def repair(store: Store, as_json: opt.Json = False) -> None:
    """Drop the damaged files of a store; `hcep encode` then encodes their images again, and no others."""
    dropped = embeddings.EmbeddingStore(store).repair()
    left = len(embeddings.EmbeddingStore(store))
    if as_json:
        say_json({"store": store, "n_images": left, "dropped": dropped})
    else:
        n_files = f"{len(dropped):,} damaged file{'' if len(dropped) == 1 else 's'} dropped"
        say(f"{store}: {n_files}, {left:,} images left" + ("; run `hcep encode` again" if dropped else ""))
