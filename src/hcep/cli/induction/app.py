"""`hcep induce`: a hierarchy for classes that have none, by a language model, from text, or from embeddings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hcep._escape import markup as escape
from hcep._files import refuse_existing
from hcep.cli.console import Console, say
from hcep.cli.data_options import Data, Label, Labels, Vectors
from hcep.cli.hierarchy.report import labelled
from hcep.cli.induction import compare as induce_compare
from hcep.cli.language_model import BaseUrl, Cache, Offline, chat_model
from hcep.errors import HCEPError
from hcep.hierarchy import write_hierarchy
from hcep.hierarchy.formats import find_format

if TYPE_CHECKING:
    from hcep.induction import Induced
    from hcep.induction.placement import Placement
    from hcep.llm import ChatModel

app = typer.Typer(no_args_is_help=True, help="Make a hierarchy for classes that have none.", rich_markup_mode="rich")
app.command(name="compare")(induce_compare.compare)

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

    [bold]Examples[/]

      hcep induce llm classes.txt -o tree.json --model gpt-5-mini --cache answers/

      hcep induce llm classes.txt -o tree.json --model qwen3 --base-url http://127.0.0.1:11434/v1 --strategy layers

      hcep induce llm classes.txt -o tree.json --model gpt-5-mini --cache answers/ --offline
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

    [bold]Examples[/]

      hcep induce text classes.txt -o tree.json --corpus wikipedia.txt.gz --min-count 3

      hcep induce text classes.txt -o tree.json --corpus a.txt --corpus b.txt --evidence evidence.json
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
    """Cluster the mean embeddings of the classes; groups are named by a vocabulary, a language model, or their members.

    [bold]Examples[/]

      hcep induce geometry store/ -o tree.json

      hcep induce geometry store/ -o tree.json --gap 0.2 --vocabulary nouns.txt --encoder open_clip:ViT-B-32/openai

      hcep induce geometry embeddings.npz -o tree.json --model qwen3 --base-url http://127.0.0.1:11434/v1
    """
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
    console = Console(stderr=True, soft_wrap=True)
    incomplete = [] if induced.complete else [f"the hierarchy is incomplete; look {output} over before using it"]
    for line in (*induced.summary().splitlines(), *incomplete):
        console.print(f"[yellow]warning:[/] {escape(line)}", highlight=False)
    raise typer.Exit(int(not induced.complete))
