"""`hcep induce`: a hierarchy for classes that have none, by a language model, from text, or from embeddings.

`hcep induce compare` scores several candidates in one table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from hcep import embeddings as emb
from hcep._checks import NO_NUMBER, escape_markup as escape
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.console import Console, say, say_json, table_of, tell
from hcep.cli.hierarchy import read
from hcep.cli.hierarchy_edits import labelled
from hcep.cli.options import argument, option
from hcep.errors import HCEPError
from hcep.taxonomy import induction, write_hierarchy
from hcep.taxonomy.formats import find_format

app = opt.group("Make a hierarchy for classes that have none.")
Classes = Annotated[Path, argument("Class names: a text file, one per line, or a JSON list.")]
Output = Annotated[Path, option("Hierarchy to write (.json or another format).", "--output", "-o")]
Root = Annotated[str, option("Name of the root.")]
Prices = Annotated[str | None, option("Price of a million prompt and completion tokens.", metavar="IN,OUT")]
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
    model: Annotated[str, option("Language model, as its server names it.", "--model")],
    base_url: opt.BaseUrl = None,
    strategy: Annotated[Literal["whole", "layers"], option("Ask for the whole tree, or layer after layer.")] = "whole",
    root: Root = "entity",
    rounds: Annotated[int, option("Answers to ask for at most.", min=1)] = 4,
    cache: opt.Cache = None,
    offline: opt.Offline = False,
    max_tokens: Annotated[int, option("Longest answer, in tokens.", min=1)] = 4096,
    timeout: Annotated[float, option("Seconds for one answer.")] = 60.0,
    prices: Prices = None,
    transcript: Annotated[Path | None, option("File to keep the conversation in, as JSON.")] = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Ask a language model. The key of a hosted one is read from OPENAI_API_KEY; a local server needs none.

    Exit code 1 where the model left classes out: the tree is written all the same, with those classes under the root.
    """
    _check_output(output, force, transcript, "--transcript")
    names = induction.read_names(classes)
    chat = _chat(model, base_url, prices, cache=cache, offline=offline, max_tokens=max_tokens, timeout=timeout)
    console = Console(stderr=True, quiet=as_json, soft_wrap=True)

    def told(number: int, placement: Any) -> None:
        faults = ", ".join(sorted({problem.kind for problem in placement.problems})) or "no fault"
        console.print(f"round {number}: {len(placement.placed):,} of {len(names):,} classes placed; {faults}")

    induced = induction.induce_with_llm(names, chat, root=root, strategy=strategy, max_rounds=rounds, progress=told)
    if transcript is not None:
        induced.save_transcript(transcript)
    _finish(induced, output, as_json)


@app.command()
def text(
    classes: Classes,
    output: Output,
    *,
    corpus: Annotated[list[Path], option("Text to read, plain or .gz, a sentence never over two lines.")],
    min_count: Annotated[int, option("Sentences that an edge needs.", min=1)] = 2,
    max_parents: Annotated[int, option("Parents a concept keeps; 0 for all.", min=0)] = 1,
    vocabulary: Annotated[Path | None, option("Names of inner concepts, one per line; any noun by default.")] = None,
    evidence: Annotated[Path | None, option("File for the evidence of each edge, as JSON.")] = None,
    root: Root = "entity",
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Read what a text says about the classes ("vehicles such as cars and trucks").

    Exit code 1 where the text places some classes nowhere: they hang from the root.
    """
    from hcep.taxonomy.induction.from_text import read_lines

    _check_output(output, force, evidence, "--evidence")
    names = induction.read_names(classes)
    allowed = None if vocabulary is None else induction.read_names(vocabulary)
    lines = (line for path in corpus for line in read_lines(path))
    options: Any = {"root": root, "vocabulary": allowed, "min_count": min_count, "max_parents": max_parents or None}
    with Console(stderr=True, quiet=as_json).status("reading …"):
        induced = induction.induce_from_text(names, lines, **options)
    if evidence is not None:
        induced.save_evidence(evidence)
    _finish(induced, output, as_json)


@app.command()
def geometry(
    data: opt.Data,
    output: Output,
    *,
    vectors: opt.Vectors = None,
    label: opt.Label = None,
    labels: opt.Labels = None,
    split: Annotated[str | None, option("Split to use; train where there is one.")] = None,
    linkage: Annotated[Literal["ward", "average"], option("How groups are merged.")] = "ward",
    gap: Annotated[float, option("How much lower than the one above a group is: 1 is flat.", min=0, max=1)] = 0.1,
    max_branching: Annotated[int | None, option("Most children where groups are dissolved.", min=2)] = None,
    vocabulary: Annotated[Path | None, option("Names of groups: .npz of `phrases`, `embeddings`; or text.")] = None,
    encoder: Annotated[str | None, option("Text tower for text; the store's by default.", "--encoder", "-e")] = None,
    template: Annotated[str, option("What a phrase is put into, such as 'a photo of {}'.")] = "{}",
    model: Annotated[str | None, option("Language model, as its server names it.", "--model")] = None,
    base_url: opt.BaseUrl = None,
    cache: opt.Cache = None,
    offline: opt.Offline = False,
    prices: Prices = None,
    root: Root = "entity",
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Cluster the mean embeddings of classes; groups are named by a vocabulary, a language model or their members."""
    _check_output(output, force)
    found = labelled(data, split, vectors=vectors, label=label, labels=labels)
    names, means = induction.class_means(found.X, found.y)
    tower = encoder or (found.encoder.name if found.encoder else None)
    induced = induction.induce_from_embeddings(
        means,
        names,
        linkage=linkage,
        gap=gap,
        max_branching=max_branching,
        names_from=None if vocabulary is None else _vocabulary(vocabulary, tower, template, means.shape[1]),
        chat=_chat(model, base_url, prices, cache=cache, offline=offline, max_tokens=64),
        root=root,
    )
    _finish(induced, output, as_json)


@app.command()
def compare(
    trees: Annotated[list[str], argument("Hierarchies to compare: files, `imagenet`, model folders.")],
    *,
    gold: Annotated[str | None, option("Hierarchy they should be like.")] = None,
    data: Annotated[Path | None, option("Labelled embeddings or photos, in any form that `hcep fit` takes.")] = None,
    vectors: opt.Vectors = None,
    label: opt.Label = None,
    labels: opt.Labels = None,
    split: Annotated[str | None, option("Split to fit on; train where there is one.")] = None,
    val_split: Annotated[str | None, option("Split to score on; val, else a share of each class, by default.")] = None,
    options: opt.ReaderOptions = None,
    as_json: opt.Json = False,
) -> None:
    """Score hierarchies of the same classes: against a gold one, in the embedding space, and at classifying."""
    if gold is None and data is None:
        raise typer.BadParameter("give --gold, --data or both; there is nothing to compare by", param_hint="--gold")
    reference = None if gold is None else read(gold, options=options)
    images = {}
    if data is not None:
        parts: dict[str, Any] = {"vectors": vectors, "label": label, "labels": labels}
        train, held_out = labelled(data, split, **parts), labelled(data, val_split, "val", **parts)
        images = {"X": train.X, "y": train.y}
        if not np.array_equal(train.ids, held_out.ids):  # no splits: a share of the images is held out
            images |= {"X_val": held_out.X, "y_val": held_out.y}
    rows: dict[str, dict[str, float]] = {}
    with Console(stderr=True, quiet=as_json).status("scoring …") as status:
        for tree in trees:
            status.update(f"scoring {escape(tree)} …")
            candidate = read(tree, options=options)
            try:
                rows[tree] = induction.score_induced(candidate, reference, **images)
            except HCEPError as error:
                raise HCEPError(f"{tree}: {error}") from None
    if as_json:
        say_json({t: {k: None if math.isnan(v) else v for k, v in row.items()} for t, row in rows.items()})
        return
    # Scores over fewer classes, or other ones, do not compare with those over all.
    for name, row in rows.items():
        n_shared = row.get("n_leaves_compared")
        if n_shared is not None and not n_shared == row["n_leaves"] == row["n_leaves_gold"]:
            left = f"{row['n_leaves'] - n_shared:,.0f} of its own left out"
            told = f"{name}: {_classes(row)} classes of --gold compared, {left}"
            tell(f"{told}; scores over different classes do not compare", "warning")
    cells = {name: [escape(name)] for name in rows}
    heads = ["hierarchy"]
    if any("n_leaves_gold" in row for row in rows.values()):
        heads.append("classes")
        cells = {name: [*shown, _classes(rows[name])] for name, shown in cells.items()}
    for column, (title, better) in COLUMNS.items():
        values = {name: row[column] for name, row in rows.items() if column in row}
        known = [value for value in values.values() if not math.isnan(value)]
        best = better(known) if better and known and len(rows) > 1 else None
        heads += [title] if values else []
        for name, value in values.items():
            shown = NO_NUMBER if math.isnan(value) else f"{value:.3f}" if better else f"{value:,.0f}"
            cells[name].append(f"[bold]{shown}[/]" if value == best else shown)
    Console().print(table_of(heads, cells.values()))


def _check_output(output: Path, force: bool, beside: Path | None = None, flag: str = "") -> None:
    """Everything that can be wrong with the output, and with a file beside it, before anything is paid for."""
    find_format(output.name, None, to="write")
    refuse_existing(output, force, "--output")
    refuse_existing(beside, force, flag)
    if not output.absolute().parent.is_dir():
        raise HCEPError(f"--output: there is no folder {str(output.absolute().parent)!r}; make it first")


def _chat(model: str | None, base_url: str | None, prices: str | None, **options: Any) -> Any:
    refusal = "--base-url, --cache, --offline and --prices are about a language model; say --model"
    return opt.chat_model(model, base_url, refusal, prices=None if prices is None else prices.split(","), **options)


def _vocabulary(path: Path, encoder: str | None, template: str, n_dims: int) -> tuple[tuple[str, ...], Any]:
    from hcep.taxonomy.naming.phrases import embed_phrases, read_embedded_phrases, read_phrases

    if path.suffix == ".npz":
        return read_embedded_phrases(path, n_dims)
    if encoder is None:
        raise HCEPError("--vocabulary: a file of text needs --encoder, one with a text tower, to embed its phrases")
    phrases = read_phrases(path)
    return phrases, embed_phrases(emb.load_encoder(encoder), phrases, template=template)


def _finish(induced: induction.Induced, output: Path, as_json: bool) -> None:
    """Write the tree, say what is wrong with it, and end with 1 where classes are missing from it."""
    write_hierarchy(induced.hierarchy, output)
    if as_json:
        say_json({"output": output, **induced.record()})
        raise typer.Exit(int(not induced.complete))
    say(induced.hierarchy.format_tree(max_children=12))
    say(f"\n{output}: {induced.hierarchy!r}")
    if induced.usage is not None:
        say(induced.usage)
    incomplete = [] if induced.complete else [f"the hierarchy is incomplete; look {output} over before using it"]
    for line in (*induced.summary().splitlines(), *incomplete):
        tell(line, "warning")
    raise typer.Exit(int(not induced.complete))


def _classes(row: dict[str, float]) -> str:
    return f"{row['n_leaves_compared']:,.0f} of {row['n_leaves_gold']:,.0f}"
