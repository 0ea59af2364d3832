"""`hcep demo`: the method on the bundled sample, in a few seconds and without a network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.padding import Padding

from hcep._escape import html, markup as escape
from hcep._files import write_text
from hcep._tables import number
from hcep.cli.console import Console, say_json, table_of
from hcep.cli.options import option
from hcep.errors import HCEPError

if TYPE_CHECKING:
    from hcep.experiments.comparison import Comparison

PAPER, OURS = "the paper's rule", "ours"
#: Of scikit-learn, which says who took them.
PHOTOS = ("china.jpg", "flower.jpg")
PHOTO_CREDIT = "Photos by danielbuechele and vultilion, CC BY 2.0"
WRONG = "Where the paper's rule goes wrong and ours does not"


def demo(
    output: Annotated[Path, option("Folder for the HTML report.", "--output", "-o")] = Path("hcep-demo"),
    images: Annotated[int, option("Images to explain.", "--images", "-n", min=0, max=50)] = 3,
    beam_width: Annotated[int, option("Beam of the paper's HB-OMP.", "--beam-width", "-b", min=1)] = 8,
    as_json: Annotated[bool, option("Print the table as JSON and nothing else.", "--json")] = False,
) -> None:
    """Explain two photos out of the box, then fit, compare and explain on a thousand real ImageNette embeddings.

    The photos (they come with scikit-learn) need the built-in encoder: pip install "hcep[photos]". Then it compares
    OMP, HNN, NN, the paper's HB-OMP and ours, explains a few images as rooted paths, shows one that the paper's rule
    gets wrong and why, and writes HTML reports. `hcep reproduce sample` has more methods and controls.
    """
    from hcep.datasets import load_sample
    from hcep.experiments.comparison import compare_methods, only_ours_right
    from hcep.experiments.tasks import sample as sample_task

    if output.is_file() and not as_json:
        raise HCEPError(f"--output: {str(output)!r} is a file; give a folder")
    sample = load_sample()
    with Console(stderr=True).status("compiling kernels (first run only) …") as status:
        comparison = compare_methods(
            sample_task(tree=True),
            beam_width,
            on_step=lambda name: status.update(f"{name} … (the first run compiles the kernels)"),
        )
    if as_json:
        say_json(comparison.rows)
        return
    console, tree = Console(), comparison.ours.hierarchy_
    _explain_photos(console, output)
    what = f"{len(sample.X_train)} training and {len(sample.X_val)} validation images of ImageNette"
    console.print(
        f"\n[bold]HCEP[/] on {what}, {len(tree.leaves)} classes, {tree.depth} levels of WordNet; embeddings of "
        "EfficientNet-Lite2.\n"
    )
    cells = [_cells(row) for row in comparison.rows]
    styles = ["bold green" if row is cells[-1] else "" for row in cells]
    console.print(table_of(list(cells[0]), [list(row.values()) for row in cells], styles=styles))
    console.print(
        f"[dim]Ours chose shrinkage {comparison.ours.shrinkage_} and anchor {comparison.ours.anchor_} by leaving out "
        "training images, and searches all paths exactly. OMP, HNN and HB-OMP label images by the published head on "
        "their codes; precision and recall score the concepts found.[/]\n"
    )
    chosen = _spread(comparison, sample.y_val, images)
    contrasted = next(only_ours_right(comparison, sample.y_val), None)
    _print_images(console, comparison, sample, chosen)
    sentence = None if contrasted is None else _print_contrast(console, comparison, sample, contrasted)
    about = "embedded by EfficientNet-Lite2; WordNet's first-hypernym tree above the ten classes, chains merged"
    why = "" if sentence is None else f" {WRONG}: {sample.images_val[contrasted]}. {sentence}"
    shown = chosen if contrasted is None else [*chosen, contrasted]
    path = _write_report(output, f"{what}, {about}.{why}", comparison, sample, shown)
    console.print(f"The report, with bars: [bold]{escape(str(path))}[/]")


def _explain_photos(console: Console, output: Path) -> None:
    """Two photos by the built-in model, with a report that maps every concept; without its encoder, how to get it."""
    from hcep._optional import install_command, is_installed
    from hcep.cli.render import verdict
    from hcep.embeddings.encoders import DEFAULT, SOURCES

    if not all(map(is_installed, SOURCES[DEFAULT].packages)):
        console.print(f"\n[dim]With {escape(install_command('photos'))} the demo also explains photos.[/]")
        return
    import sklearn.datasets

    from hcep.explain import explain_images
    from hcep.explain.report import photo_report

    folder = Path(sklearn.datasets.__file__).parent / "images"
    found = explain_images([folder / name for name in PHOTOS], where=True)
    console.print()
    for one in found:
        path = " → ".join(step.name for step in one.explanation.steps)
        console.print(f"{Path(one.file).name}: {verdict(one)} ({escape(path)})", soft_wrap=True, highlight=False)
    page = output / "photos.html"
    write_text(page, photo_report(found, f"Two photos, explained. {PHOTO_CREDIT}"))
    console.print(f"Where each concept is: [bold]{escape(str(page))}[/]  [dim]({PHOTO_CREDIT})[/]")


def _cells(row: dict[str, Any]) -> dict[str, str]:
    titles = {"tree_distance": "mistake distance"}
    scores = ("accuracy", "precision", "recall", "tree_distance")
    shown = {titles.get(name, name): number(row[name]) for name in scores}
    return {"method": row["method"], **shown, "images/s": f"{row['images_per_second']:,.0f}"}


def _spread(comparison: Comparison, y: Any, n: int) -> list[int]:
    """One image of each class in turn, from classes far apart, correctly explained."""
    right = comparison.ours_result.leaves == y
    classes = list(dict.fromkeys(y.tolist()))
    firsts = [next((i for i in range(len(y)) if right[i] and y[i] == c), None) for c in classes]
    step = max(1, len(classes) // max(n, 1))
    order = [*firsts[::step], *[f for k, f in enumerate(firsts) if k % step]]
    return [i for i in order if i is not None][:n]


def _print_images(console: Console, comparison: Comparison, sample: Any, chosen: list[int]) -> None:
    from hcep.cli.render import path_tree
    from hcep.explain import explain

    for i, explanation in zip(chosen, explain(sample.X_val, comparison.ours_result, chosen), strict=True):
        console.print(f"[dim]{escape(str(sample.images_val[i]))}[/]")
        console.print(Padding(path_tree(explanation), (0, 0, 1, 2)))


def _print_contrast(console: Console, comparison: Comparison, sample: Any, i: int) -> str:
    """Show an image that the paper's rule gets wrong; the sentence that says why."""
    from hcep.explain import contrast, explain

    paper, ours = (explain(sample.X_val, r, [i])[0] for r in (comparison.paper_result, comparison.ours_result))
    sentence = contrast(paper, ours, comparison.paper_result).sentence(PAPER, OURS)
    name = comparison.ours.hierarchy_.name(str(sample.y_val[i]))
    console.print(f"[bold]{WRONG}:[/] {escape(str(sample.images_val[i]))}, a {name}")
    console.print(f"  [red]✗[/] {PAPER}: {escape(paper.trail())}")
    console.print(f"  [green]✓[/] {OURS}:             {escape(ours.trail())}")
    console.print(Padding(escape(sentence), (0, 0, 1, 2)))
    return sentence


def _write_report(output: Path, text: str, comparison: Comparison, sample: Any, chosen: list[int]) -> Path:
    from hcep.explain.report import photo_report

    rows = [list(row.values()) for row in map(_cells, comparison.rows)]
    lines = [[f"<th>{html(head)}</th>" for head in _cells(comparison.rows[0])]]
    lines += [[f"<td>{html(cell)}</td>" for cell in row] for row in rows]
    table = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    found = comparison.ours.explain(sample.X_val[chosen])
    for k, i in enumerate(chosen):
        found[k] = replace(found[k], file=str(sample.images_val[i]), truth=str(sample.y_val[i]))
    path = output / "report.html"
    write_text(path, photo_report(found, "HCEP on the bundled sample", f"<p>{html(text)}</p><table>{table}</table>"))
    return path
