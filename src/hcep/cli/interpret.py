"""`hcep interpret`: words and images for the atoms of a model, kept with it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from hcep.cli.atom_naming import Candidates, Task, define, name_by_phrases, show_by_images, start, sum_up, warn_of
from hcep.cli.config import Config
from hcep.cli.encode import Preprocessing
from hcep.errors import HCEPError

if TYPE_CHECKING:
    from hcep.explain.naming import Failure
    from hcep.llm import ChatModel

#: Atoms listed where no table is asked for.
LISTED = 20
#: Phrases a language model writes for a pair where nothing else is given to compare with.
DESCRIBED = 5


def interpret(
    model: Annotated[Path, typer.Argument(help="Model folder made by `hcep fit`.")],
    phrases: Annotated[
        Path | None,
        typer.Option(help="Candidate phrases, one a line; or an .npz of `phrases` and their `embeddings`."),
    ] = None,
    vocabulary: Annotated[Path | None, typer.Option(help="More candidates, one word or phrase a line.")] = None,
    glosses: Annotated[bool, typer.Option(help="WordNet's definitions as candidates, too (ImageNet's ids).")] = False,
    describe: Annotated[
        int | None, typer.Option(min=0, help="Candidates a pair that the language model writes.")
    ] = None,
    encoder: Annotated[str | None, typer.Option("--encoder", "-e", help="The model's own by default.")] = None,
    preprocessing: Preprocessing = None,
    template: Annotated[str, typer.Option(help="What a phrase is put into, such as 'a photo of {}'.")] = "{}",
    center: Annotated[bool, typer.Option(help="Subtract the mean of the phrases' embeddings.")] = False,
    images: Annotated[
        Path | None, typer.Option(help="Store or array file: show atoms by these images, without a text tower.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of the images; all by default.")] = None,
    llm_model: Annotated[str | None, typer.Option(help="Language model that sums up the phrases.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Its server, as a rule ending in /v1.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps its answers; a second run replays them.")
    ] = None,
    offline: Annotated[bool, typer.Option(help="Answers from the cache alone.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Answers to ask for before an atom is given up.")] = 3,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Phrases, or images, an atom.")] = 10,
    synset: Annotated[list[str] | None, typer.Option(help="Only atoms that lead to this synset (id or name).")] = None,
    table: Annotated[bool, typer.Option("--table", help="Print the paper's table: pair, concepts, words.")] = False,
    format: Annotated[Literal["text", "markdown", "latex"], typer.Option(help="Of the table.")] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    config: Config = None,
) -> None:
    """Name the atoms of a model: nearest phrases, images along them, a language model's summary; kept with the model.

    Without anything to name them by, the names that the model has, or WordNet's definitions, are shown.

    [bold]Examples[/]

      hcep interpret model/ --phrases phrases.txt --template 'a photo of {}'

      hcep interpret model/ --images store/ --table

      hcep interpret model/ --llm-model gpt-5 --cache answers/ --table --format latex

      hcep interpret model/ --synset 'polar bear' --json
    """
    if format != "text" and not table:
        raise HCEPError(f"--format {format} is of the table; add --table")
    task = start(model, synset, as_json)
    chat = _chat(llm_model, base_url, cache, offline)
    files = tuple(path for path in (phrases, vocabulary) if path is not None)
    if describe is None:
        nothing_else = not (files or glosses or any(atom.phrases for atom in task.chosen))
        describe = DESCRIBED if chat is not None and nothing_else else 0
    if describe and chat is None:
        raise HCEPError("--describe: a language model writes these candidates; say which with --llm-model")
    candidates = Candidates(files, glosses, describe, template, center, top_k)
    failures: tuple[Failure, ...] = ()
    if candidates:
        task, failures = name_by_phrases(task, candidates, encoder, preprocessing, chat, rounds)
    if images is not None:
        task = show_by_images(task, images, split, top_k)
    if chat is not None:
        task, unsummed = sum_up(task, chat, rounds)
        failures += unsummed
    if candidates or images is not None:
        task = define(task)
    kept = bool(task.chosen)
    if not kept:
        task = define(task, keep=False)
    if not task.chosen:
        raise HCEPError(
            "there is nothing to name the atoms by: give --phrases or --vocabulary (the encoder needs a text tower), "
            "--images, or --llm-model"
        )
    if as_json:
        typer.echo(json.dumps(_record(task, failures, chat), indent=2, ensure_ascii=False))
        return
    warn_of(failures)
    if table:
        from hcep.explain.naming import interpretation_table

        typer.echo(_printable(interpretation_table(task.chosen, task.hierarchy, format, top_k=top_k)))
    else:
        _print(task, chat, kept)


def _chat(model: str | None, base_url: str | None, cache: Path | None, offline: bool) -> ChatModel | None:
    if model is None:
        if base_url or cache or offline:
            raise HCEPError("--base-url, --cache and --offline are about a language model; say which with --llm-model")
        return None
    from hcep.llm import ChatModel

    return ChatModel(model, base_url, cache=cache, offline=offline)


def _record(task: Task, failures: tuple[Failure, ...], chat: ChatModel | None) -> dict[str, Any]:
    name = task.hierarchy.name
    return {
        "model": str(task.model),
        "encoder": task.names.encoder,
        "template": task.names.template,
        "centered": task.names.centered,
        "llm": task.names.llm,
        "usage": None if chat is None else asdict(chat.usage),
        "failures": [asdict(failure) for failure in failures],
        "atoms": [
            {
                **asdict(atom),
                "parent_name": name(atom.parent),
                "child_name": name(atom.child),
                "meaning": atom.meaning,
                "source": atom.source,
            }
            for atom in task.chosen
        ],
    }


def _print(task: Task, chat: ChatModel | None, kept: bool) -> None:
    console = Console(soft_wrap=True, highlight=False)
    name = task.hierarchy.name
    for atom in task.chosen[:LISTED]:
        images = ", ".join(image.id for image in atom.exemplars[:3])
        words = atom.meaning or images or "(nothing)"
        more = f"  (images {images})" if atom.meaning and images else ""
        console.print(
            f"[bold]{escape(name(atom.parent))} → {escape(name(atom.child))}[/]  "
            f"{escape(_printable(words))}[dim]{escape(_printable(more))}[/]"
        )
    if len(task.chosen) > LISTED:
        console.print(f"[dim]and {len(task.chosen) - LISTED:,} more: --table shows all, --synset some[/]")
    sources = Counter(atom.source or "nothing" for atom in task.chosen)
    told = ", ".join(f"{n:,} by {source}" for source, n in sources.most_common())
    with_images = sum(bool(atom.exemplars) for atom in task.chosen)
    told += f"; {with_images:,} with images" if with_images else ""
    where = f"{'kept' if kept else 'not kept'} with {task.model}"
    console.print(f"{len(task.chosen):,} of {task.hierarchy.n_edges:,} atoms: {told}; {escape(where)}")
    if chat is not None:
        console.print(f"[dim]{escape(str(chat.usage))}[/]")


def _printable(text: str) -> str:
    """Names of images are anything; what a terminal would obey is shown as a replacement character."""
    from hcep.explain.naming.atom_names import odd_character

    return "".join(c if c == "\n" or odd_character(c) is None else "\ufffd" for c in text)
