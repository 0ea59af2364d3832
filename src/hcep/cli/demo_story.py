"""What `hcep demo` tells: photos explained, a model fitted and grown, methods compared."""

import shlex
import tomllib
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont, ImageOps
from rich.padding import Padding

from hcep import explain
from hcep._checks import install_command, is_installed, rounded
from hcep._files import refuse_existing, write_text
from hcep.cli.console import Console, escape, half_blocks, say, say_json, table_of, verdict
from hcep.datasets.sample_data import NEW_CLASS, photo_credits, write_sample
from hcep.explain.answer import Answer, percent
from hcep.explain.corrections import Corrections
from hcep.explain.map_drawing import common_limit, drawn_on
from hcep.explain.report import ReportTable, main_evidence, photo_report

STORY: dict[str, Any] = tomllib.loads(Path(__file__).with_name("demo.toml").read_text("utf-8"))
#: Columns of the comparison, and their titles.
COLUMNS = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "tree_distance": "mistake distance"}
COMPARISON, NEXT = "How good is it, compared with other methods?", "Try next, on your own photos"
#: Width and height of each of the two pictures of an answer on a terminal, in half-blocks.
STRIP = (22, 14)


class Card(NamedTuple):
    """An answer of the demo, with its heading and what there is to see."""

    heading: str
    text: str
    answer: Answer


def tell_story(output: Path, as_json: bool) -> None:
    """Run the demo (see `hcep.cli.demo`)."""
    from hcep.embeddings.encoders import DEFAULT, SOURCES

    if as_json:
        say_json(_comparison())
        return
    refuse_existing(output, True, "--output", folder=True)
    console, cards, report = Console(highlight=False), [], output / "report.html"
    has_encoder = all(map(is_installed, SOURCES[DEFAULT].packages))
    if has_encoder:
        with Console(stderr=True).status("writing photos …"):
            write_sample(output / "sample")
        cards = [*_builtin_answers(console, output), *_own_answers(console, output)]
    comparison = _compare(console)
    if not has_encoder:
        console.print(f"\nThe demo also explains photos, with {escape(install_command('photos'))}", soft_wrap=True)
        return
    tables = [ReportTable(NEXT, "", [("type", "to"), *STORY["next"]]), comparison]
    whose = "Photos 7 to 9, and their training photos, are crops of these."
    credits = ReportTable("Credits", whose, [("photo", "credit"), *photo_credits().items()])
    answers, captions = [card.answer.replaced(truth=None) for card in cards], [card[:2] for card in cards]
    write_text(report, photo_report(answers, STORY["title"], STORY["about"], [*tables, credits], captions))
    console.print(f"\nThe report with all maps: [bold]{escape(str(report))}[/]", soft_wrap=True)
    console.print(f"\n[bold]{NEXT}[/]")
    for command, what in STORY["next"]:
        say(f"{command}\n    {what}")


def _builtin_answers(console: Console, output: Path) -> list[Card]:
    """Explain photos with the built-in model."""
    from hcep.embeddings.images import open_image
    from hcep.models.opening import builtin_model

    with Console(stderr=True).status("opening the built-in model …"):
        model, folder = builtin_model(), output / "sample"
    both = _side_by_side(open_image(folder / name) for name in ("cat.jpg", "coffee.jpg"))
    made: dict[str, Any] = {"cat and coffee": both, "page of text": _page()}
    console.print("[bold]Photos, with ImageNet's thousand classes[/]\n")
    cards = []
    for part in STORY["builtin"]:
        photo, text, options = part["photo"], part["text"], part.get("options", {})
        _say_heading(console, part["heading"], photo)
        if "correction" in part:
            before, file = explain.explain_images(folder / photo, model)[0], output / "corrections.jsonl"
            console.print(Padding(verdict(before), (0, 0, 1, 3), expand=False))
            _run(console, "correct", folder / photo, *part["correction"], "--corrections", file)
            text = text.format(before=before.headline_parts()[0])
            options = {"corrections": Corrections(file, model.path_model.hierarchy)}
        answer = explain.explain_images(made.get(photo, folder / photo), model, where=True, **options)[0]
        cards.append(_show(console, Card(part["heading"], text, answer.replaced(file=photo))))
    return cards


def _own_answers(console: Console, output: Path) -> list[Card]:
    """Fit a model to a folder of photos, evaluate it, and teach it a new class, with the commands for it."""
    folder, model = output / "sample", output / "model"
    photos, new = folder / "photos", folder / NEW_CLASS
    where = (
        f"here: crops of these photos, in {escape(str(photos))}; test crops are of the same photos, so the test is easy"
    )
    console.print(f"[bold]Your own photos and classes[/] ({where})\n")

    def ask(part: str, photo: Path, training: bool = True) -> Card:
        _say_heading(console, STORY[part]["heading"], photo)
        answer = explain.explain_images(photo, model, where=True, training=training)[0]
        return _show(console, Card(STORY[part]["heading"], STORY[part]["text"], answer))

    overwrite = ["--overwrite"] if (model / "model.json").exists() else []
    _run(console, "fit", photos, "--hierarchy", folder / "things.csv", "-o", model, *overwrite)
    _run(console, "evaluate", model, photos, n_lines=2)
    cards = [ask("own", photos / "val" / "rocket" / "0.jpg"), ask("unknown", new / "val" / "0.jpg")]
    _run(console, "model", "add", model, new / "train", "--class", NEW_CLASS, "--under", "living thing")
    return [*cards, ask("added", new / "val" / "0.jpg", training=False)]


def _say_heading(console: Console, heading: str, photo: str | Path) -> None:
    console.print(f"[bold]{heading}[/]  [dim]{escape('/'.join(Path(photo).parts[-2:]))}[/]")


def _show(console: Console, card: Card) -> Card:
    """Print the answer of a card and, on a terminal with colours, the photo and its map."""
    answer = card.answer
    lines = [verdict(answer)]
    lines += [escape(answer.correction.summary())] if answer.correction is not None else []
    lines += [f"{percent(part.share)} of the evidence: {escape(part.name)}" for part in answer.objects]
    lines += [escape(contrast.lines()[0]) for contrast in answer.contrasts]
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 3), expand=False))
    if console.color_system in ("256", "truecolor") and answer.maps is not None:
        evidence, _ = main_evidence(answer)
        mapped = drawn_on(answer.photo(), evidence, answer.maps.region, common_limit([evidence]))
        console.print(half_blocks(_side_by_side([answer.photo(), mapped], STRIP), indent=3))
    console.print()
    return card


def _run(console: Console, *words: object, n_lines: int = 1) -> None:
    """Run a command as typed, and print it with the first lines of its output."""
    from hcep.cli.app import app

    texts, printed = list(map(str, words)), StringIO()
    console.print(f"[dim]$[/] [bold]hcep {escape(shlex.join(texts))}[/]", soft_wrap=True)
    with Console(stderr=True).status("…"), redirect_stdout(printed), redirect_stderr(StringIO()):
        app(texts, standalone_mode=False)
    for line in printed.getvalue().splitlines()[:n_lines]:
        console.print(f"  {escape(line.strip())}", soft_wrap=True)
    console.print()


def _side_by_side(photos: Iterable[Image.Image], size: tuple[int, int] = (320, 320), gap: int = 1) -> Image.Image:
    """Photos beside each other, cut to one size."""
    parts = [ImageOps.fit(photo, size) for photo in photos]
    both = Image.new("RGB", (len(parts) * (size[0] + gap) - gap, size[1]))
    for i, part in enumerate(parts):
        both.paste(part, (i * (size[0] + gap), 0))
    return both


def _page() -> Image.Image:
    """A page of text, in black on white."""
    page, text = Image.new("RGB", (480, 360), "white"), "\n".join(wrap(STORY["about"] + " " + STORY["compared"], 62))
    ImageDraw.Draw(page).multiline_text((30, 30), text, fill="black", font=ImageFont.load_default(13), spacing=7)
    return page


def _comparison() -> list[dict[str, Any]]:
    from hcep.evaluate.sample import compare_on_sample

    with Console(stderr=True).status("comparing methods …") as status:
        return compare_on_sample(lambda name: status.update(f"{name} … (the first run compiles kernels)"))


def _compare(console: Console) -> ReportTable:
    """Compare methods on the bundled embeddings, and print the table."""
    heads, rows = ("method", *COLUMNS.values(), "images/s"), []
    for row in _comparison():
        rows.append((row["method"], *(rounded(row[column]) for column in COLUMNS), f"{row['images_per_second']:,.0f}"))
    console.print(f"[bold]{COMPARISON}[/]\n")
    console.print(table_of(heads, rows, styles=[""] * (len(rows) - 1) + ["bold green"]))
    console.print(f"[dim]{STORY['compared']}[/]")
    return ReportTable(COMPARISON, STORY["compared"], [heads, *rows])
