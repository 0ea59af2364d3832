"""`hcep encode`: images into a store of embeddings."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hcep import datasets, embeddings, ray as distributed
from hcep.cli import options as opt
from hcep.cli.config import Config, save_resolved
from hcep.cli.console import Console, escape, say, say_json, show_notes
from hcep.cli.options import argument, more, option


def encode(
    context: typer.Context,
    *,
    images: Annotated[
        Path, argument("Folder of images (class/photo.jpg), or a table of paths and labels.", metavar="IMAGES")
    ],
    output: opt.Output,
    encoder: opt.Encoder = None,
    split: opt.Split = None,
    batch_size: Annotated[int, option("Images per batch.", "--batch-size N", min=1)] = 64,
    workers: Annotated[
        int | None, option("Number of threads that decode images (with --ray: number of actors).", "--workers N", min=1)
    ] = None,
    device: Annotated[
        str | None, option("cpu, cuda or cuda:1 (default: a GPU, if there is one).", "--device NAME")
    ] = None,
    fresh: Annotated[bool, option("Encode everything again instead of resuming.", "--fresh")] = False,
    as_json: opt.Json = False,
    preprocessing: opt.Preprocessing = None,
    layout: Annotated[str | None, more("Layout of the images (default: detected).", "--layout NAME")] = None,
    paths: Annotated[str, more("Column of the table that holds the paths.", "--paths COLUMN")] = "path",
    labels: opt.Labels = None,
    shard_size: Annotated[
        int, more("Images per file of the store; an interrupted run loses at most one file.", "--shard-size N", min=1)
    ] = 1024,
    dtype: Annotated[
        Literal["float16", "float32"], more("Precision on disk: float16 or float32.", "--dtype TYPE")
    ] = "float16",
    strict: opt.Strict = False,
    keep_missing: Annotated[bool, more("Keep the vectors of images that no longer exist.", "--keep-missing")] = False,
    hierarchy: opt.HierarchyOption = None,
    options: opt.ReaderOptions = None,
    ray: opt.Ray = None,
    config: Config = None,
) -> None:
    """Encode images into a store of embeddings; run the command again to resume or to update.

    An update encodes new images, relabels images that moved to another class and removes those that are gone.
    Unreadable images are skipped and listed with the reason. With --hierarchy, notes say which classes are not in it.
    """
    from hcep.datasets.encoding import copy_notes, folder_notes, tree_notes
    from hcep.embeddings.encoders import DEFAULT
    from hcep.embeddings.images import not_used
    from hcep.ray.places import is_url

    listing: dict[str, Any] = {
        "layout": layout,
        "split": split,
        "path_column": paths,
        "label_column": labels or "label",
    }
    kind: dict[str, Any] = {"preprocessing": preprocessing, "device": device}
    work: dict[str, Any] = {"batch_size": batch_size, "shard_size": shard_size, "dtype": dtype, "n_workers": workers}
    work |= {"strict": strict, "progress": not as_json, "resume": not fresh}
    dataset: Any = images if ray is not None and is_url(images) else datasets.read_images(images, **listing)
    if ray is not None:
        opt.refuse_with_ray(context, "keep_missing", "hierarchy")
        loading = partial(embeddings.load_encoder, encoder or DEFAULT, **kind)
        report = distributed.encode(dataset, loading, output, address=ray, **work)
    else:
        try:
            report = datasets.encode_images(dataset, encoder, output, remove_vanished=not keep_missing, **kind, **work)
        except KeyboardInterrupt:
            say(f"stopped; {output} has the images encoded so far. Run the same command again to resume", err=True)
            raise typer.Exit(130) from None
        save_resolved(context, output)
        left_out = not_used([reason for _, reason in dataset.unused], len(dataset) + len(dataset.unused))
        notes = [*folder_notes(dataset), *copy_notes(embeddings.EmbeddingStore(output)), left_out]
        show_notes(filter(None, notes))
        tree = hierarchy and datasets.find_hierarchy(hierarchy, **opt.reader_options(options))
        show_notes(tree_notes(dataset.labels, tree) if tree else ())
    layout = getattr(dataset, "layout", "folder")
    skipped = [{"id": image.id, "reason": image.reason} for image in report.skipped]
    if as_json:
        keys = ("n_encoded", "n_reused", "n_skipped", "n_relabelled", "n_removed", "seconds")
        numbers = {key: getattr(report, key) for key in keys}
        say_json({"store": output, "layout": layout, **numbers, "skipped": skipped})
        return
    console = Console()
    console.print(
        f"[bold]{escape(str(output))}[/]: {report.n_encoded:,} new ({report.images_per_second:,.0f} images/s), "
        f"{report.n_reused:,} reused, {report.n_relabelled:,} relabelled, {report.n_removed:,} removed, "
        f"{report.n_skipped:,} skipped; layout {layout}"
    )
    for image in skipped[:10]:
        console.print(f"  [yellow]skipped[/] {escape(image['id'])}: {escape(image['reason'])}")
    if len(skipped) > 10:
        console.print(f"  … and {len(skipped) - 10:,} more, all listed in the store's manifest")
