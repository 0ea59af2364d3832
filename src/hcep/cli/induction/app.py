"""`hcep induce`: a hierarchy for classes that have none, by a language model, from text, or from embeddings.

`hcep induce compare` scores several candidates in one table.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from rich.table import Table

from hcep._escape import markup as escape
from hcep._files import refuse_existing
from hcep._tables import NOTHING
from hcep.cli.console import Console, say
from hcep.cli.hierarchy.edit import labelled
from hcep.cli.hierarchy.files import Options, read
from hcep.cli.options import BaseUrl, Cache, Data, Label, Labels, Offline, Vectors, chat_model
from hcep.errors import HCEPError
from hcep.hierarchy import write_hierarchy
from hcep.hierarchy.formats import find_format

if TYPE_CHECKING:
    from hcep.induction import Induced
    from hcep.induction.placement import Placement
    from hcep.llm import ChatModel

app = typer.Typer(no_args_is_help=True, help="Make a hierarchy for classes that have none.", rich_markup_mode="rich")

Classes = Annotated[Path, typer.Argument(help="Class names: a text file, one per line, or a JSON list.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Hierarchy to write (.json or another format).")]
Root = Annotated[str, typer.Option(help="Name of the root.")]
Force = Annotated[bool, typer.Option(help="Replace files that are there already.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Model = Annotated[str | None, typer.Option("--model", help="Language model, as its server names it.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")]
Timeout = Annotated[float, typer.Option(help="Seconds for one answer.")]
Prices = Annotated[
    str | None, typer.Option(metavar="IN,OUT", help="Price of a million prompt and completion tokens, for the cost.")
]
#: Columns, and what makes the best of one.
COLUMNS: dict[str, tuple[str, Callable[[Iterable[float]], float] | None]] = {
    "n_synsets": ("concepts", None),
    "depth": ("depth", None),
    "edge_f1": ("edge F1", max),
    "ancestor_f1": ("ancestor F1", max),
    "cluster_f1": ("cluster F1", max),
    "overlap": ("overlap", max),
    "containment_outside": ("outside cone", min),
    "orthogonality": ("|cos|", min),
    "support_f1": ("support F1", max),
    "accuracy": ("accuracy", max),
}


@app.command()
def llm(
    classes: Classes,
    output: Output,
    *,
    model: Annotated[str, typer.Option("--model", help="Language model, as its server names it.")],
    base_url: BaseUrl = None,
    strategy: Annotated[
        Literal["whole", "layers"], typer.Option(help="Ask for the whole tree, or for one layer after the other.")
    ] = "whole",
    root: Root = "entity",
    rounds: Annotated[int, typer.Option(min=1, help="Answers to ask for at most.")] = 4,
    cache: Cache = None,
    offline: Offline = False,
    max_tokens: MaxTokens = 4096,
    timeout: Timeout = 60.0,
    prices: Prices = None,
    transcript: Annotated[Path | None, typer.Option(help="File to keep the conversation in, as JSON.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Ask a language model. The key of a hosted one is read from OPENAI_API_KEY; a local server needs none.

    Exit code 1 where the model left classes out: the tree is written all the same, with those classes under the root.
    """
    from hcep.induction import induce_with_llm, read_names

    _check_output(output, force, transcript, "--transcript")
    names = read_names(classes)
    chat = _chat(model, base_url, prices, cache=cache, offline=offline, max_tokens=max_tokens, timeout=timeout)
    assert chat is not None
    console = Console(stderr=True, quiet=as_json, soft_wrap=True)

    def tell(number: int, placement: Placement) -> None:
        n_placed = len(placement.placed)
        faults = sorted({problem.kind for problem in placement.problems})
        console.print(
            f"round {number}: {n_placed:,} of {len(names):,} classes placed; {', '.join(faults) or 'no fault'}"
        )

    induced = induce_with_llm(names, chat, root=root, strategy=strategy, max_rounds=rounds, progress=tell)
    if transcript is not None:
        induced.save_transcript(transcript)
    _finish(induced, output, as_json)


@app.command()
def text(
    classes: Classes,
    output: Output,
    *,
    corpus: Annotated[list[Path], typer.Option(help="Text to read, plain or .gz, a sentence never over two lines.")],
    min_count: Annotated[int, typer.Option(min=1, help="Sentences that an edge needs.")] = 2,
    max_parents: Annotated[int, typer.Option(min=0, help="Parents a concept keeps; 0 for all.")] = 1,
    vocabulary: Annotated[
        Path | None, typer.Option(help="Names that inner concepts may have, one per line; any noun by default.")
    ] = None,
    evidence: Annotated[Path | None, typer.Option(help="File for the evidence of each edge, as JSON.")] = None,
    root: Root = "entity",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Read what a text says about the classes ("vehicles such as cars and trucks").

    Exit code 1 where the text places some classes nowhere: they hang from the root.
    """
    from hcep.induction import induce_from_text, read_names
    from hcep.induction.from_text import read_lines

    _check_output(output, force, evidence, "--evidence")
    names = read_names(classes)
    allowed = None if vocabulary is None else read_names(vocabulary)
    lines = (line for path in corpus for line in read_lines(path))
    options: Any = {"root": root, "vocabulary": allowed, "min_count": min_count, "max_parents": max_parents or None}
    with Console(stderr=True, quiet=as_json).status("reading …"):
        induced = induce_from_text(names, lines, **options)
    if evidence is not None:
        induced.save_evidence(evidence)
    _finish(induced, output, as_json)


@app.command()
def geometry(
    data: Data,
    output: Output,
    *,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    split: Annotated[str | None, typer.Option(help="Split to use; train where there is one.")] = None,
    linkage: Annotated[Literal["ward", "average"], typer.Option(help="How groups are merged.")] = "ward",
    gap: Annotated[
        float, typer.Option(min=0, max=1, help="How much lower than the one above a group must be: 0 binary, 1 flat.")
    ] = 0.1,
    max_branching: Annotated[int | None, typer.Option(min=2, help="Most children where groups are dissolved.")] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(help="Names for groups: an .npz of `phrases` and `embeddings`, or text, one per line."),
    ] = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", "-e", help="Text tower for a vocabulary of text; the store's by default.")
    ] = None,
    template: Annotated[str, typer.Option(help="What a phrase is put into, such as 'a photo of {}'.")] = "{}",
    model: Model = None,
    base_url: BaseUrl = None,
    cache: Cache = None,
    offline: Offline = False,
    prices: Prices = None,
    root: Root = "entity",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Cluster the mean embeddings of classes; groups are named by a vocabulary, a language model or their members."""
    from hcep.induction import class_means, induce_from_embeddings

    _check_output(output, force)
    embeddings = labelled(data, split, vectors=vectors, label=label, labels=labels)
    names, means = class_means(embeddings.X, embeddings.y)
    known = embeddings.encoder.name if embeddings.encoder else None
    induced = induce_from_embeddings(
        means,
        names,
        linkage=linkage,
        gap=gap,
        max_branching=max_branching,
        names_from=None if vocabulary is None else _vocabulary(vocabulary, encoder or known, template, means.shape[1]),
        chat=_chat(model, base_url, prices, cache=cache, offline=offline, max_tokens=64),
        root=root,
    )
    _finish(induced, output, as_json)


@app.command()
def compare(
    trees: Annotated[list[str], typer.Argument(help="Hierarchies to compare: files, `imagenet`, model folders.")],
    *,
    gold: Annotated[str | None, typer.Option(help="Hierarchy they should be like.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Labelled embeddings or photos, in any form that `hcep fit` takes.")
    ] = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    split: Annotated[str | None, typer.Option(help="Split to fit on; train where there is one.")] = None,
    val_split: Annotated[
        str | None, typer.Option(help="Split to score on; val where there is one, else a share of each class.")
    ] = None,
    options: Options = None,
    as_json: Json = False,
) -> None:
    """Score hierarchies of the same classes: against a gold one, in the embedding space, and at classifying."""
    from hcep.induction.scoring import score_induced

    if gold is None and data is None:
        raise typer.BadParameter("give --gold, --data or both; there is nothing to compare by", param_hint="--gold")
    reference = None if gold is None else read(gold, options=options)
    parts: dict[str, Any] = {"vectors": vectors, "label": label, "labels": labels}
    images = {} if data is None else _images(data, split, val_split, parts)
    rows: dict[str, dict[str, float]] = {}
    with Console(stderr=True, quiet=as_json).status("scoring …") as status:
        for tree in trees:
            status.update(f"scoring {escape(tree)} …")
            candidate = read(tree, options=options)
            try:
                rows[tree] = score_induced(candidate, reference, **images)
            except HCEPError as error:
                raise HCEPError(f"{tree}: {error}") from None
    # Scores over fewer classes, or other ones, do not compare with those over all.
    for name, row in rows.items():
        n_shared = row.get("n_leaves_compared")
        if n_shared is not None and not n_shared == row["n_leaves"] == row["n_leaves_gold"]:
            text = (
                f"{name}: {_classes(row)} classes of --gold compared, {row['n_leaves'] - n_shared:,.0f} of its own "
                "left out; scores over different classes do not compare"
            )
            _warn(text, as_json)
    if as_json:
        known = {t: {k: None if math.isnan(v) else v for k, v in row.items()} for t, row in rows.items()}
        say(json.dumps(known, indent=2, ensure_ascii=False))
        return
    Console().print(_table(rows))


def _check_output(output: Path, force: bool, beside: Path | None = None, option: str = "") -> None:
    """Everything that can be wrong with the output, and with a file beside it, before anything is paid for."""
    find_format(output.name, None, to="write")
    refuse_existing(output, force, "--output")
    refuse_existing(beside, force, option)
    if not output.absolute().parent.is_dir():
        raise HCEPError(f"--output: there is no folder {str(output.absolute().parent)!r}; make it first")


def _chat(model: str | None, base_url: str | None, prices: str | None, **options: Any) -> ChatModel | None:
    refusal = "--base-url, --cache, --offline and --prices are about a language model; say --model"
    return chat_model(model, base_url, refusal, prices=None if prices is None else prices.split(","), **options)


def _vocabulary(path: Path, encoder: str | None, template: str, n_dims: int) -> tuple[tuple[str, ...], Any]:
    from hcep.embeddings import load_encoder
    from hcep.explain.naming import embed_phrases, read_embedded_phrases, read_phrases

    if path.suffix == ".npz":
        return read_embedded_phrases(path, n_dims)
    if encoder is None:
        raise HCEPError("--vocabulary: a file of text needs --encoder, one with a text tower, to embed its phrases")
    phrases = read_phrases(path)
    return phrases, embed_phrases(load_encoder(encoder), phrases, template=template)


def _finish(induced: Induced, output: Path, as_json: bool) -> None:
    """Write the tree, say what is wrong with it, and end with 1 where classes are missing from it."""
    write_hierarchy(induced.hierarchy, output)
    if as_json:
        say(json.dumps({"output": str(output), **induced.record()}, indent=2, ensure_ascii=False))
        raise typer.Exit(int(not induced.complete))
    say(induced.hierarchy.format_tree(max_children=12))
    say(f"\n{output}: {induced.hierarchy!r}")
    if induced.usage is not None:
        say(str(induced.usage))
    incomplete = [] if induced.complete else [f"the hierarchy is incomplete; look {output} over before using it"]
    for line in (*induced.summary().splitlines(), *incomplete):
        _warn(line)
    raise typer.Exit(int(not induced.complete))


def _warn(text: str, quiet: bool = False) -> None:
    Console(stderr=True, quiet=quiet, soft_wrap=True).print(f"[yellow]warning:[/] {escape(text)}", highlight=False)


def _classes(row: dict[str, float]) -> str:
    return f"{row['n_leaves_compared']:,.0f} of {row['n_leaves_gold']:,.0f}"


def _images(data: Path, split: str | None, val_split: str | None, parts: dict[str, Any]) -> dict[str, Any]:
    train, held_out = labelled(data, split, **parts), labelled(data, val_split, "val", **parts)
    if np.array_equal(train.ids, held_out.ids):  # no splits: a share of the images is held out
        return {"X": train.X, "y": train.y}
    return {"X": train.X, "y": train.y, "X_val": held_out.X, "y_val": held_out.y}


def _table(rows: dict[str, dict[str, float]]) -> Table:
    """One line per tree, the best of each column in bold."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("hierarchy")
    cells = {name: [escape(name)] for name in rows}
    if any("n_leaves_gold" in row for row in rows.values()):
        table.add_column("classes", justify="right")
        cells = {name: [*shown, _classes(rows[name])] for name, shown in cells.items()}
    for column, (title, better) in COLUMNS.items():
        values = {name: row[column] for name, row in rows.items() if column in row}
        if not values:
            continue
        table.add_column(title, justify="right")
        known = [value for value in values.values() if not math.isnan(value)]
        best = better(known) if better and known and len(rows) > 1 else None
        for name, value in values.items():
            text = NOTHING if math.isnan(value) else f"{value:.3f}" if better else f"{value:,.0f}"
            cells[name].append(f"[bold]{text}[/]" if value == best else text)
    for row in cells.values():
        table.add_row(*row)
    return table
