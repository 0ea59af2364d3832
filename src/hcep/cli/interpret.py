"""`hcep interpret`: words and images for the atoms of a model, kept with it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hcep._escape import markup as escape
from hcep.cli.config import Config
from hcep.cli.console import Console, say
from hcep.cli.encode import Preprocessing
from hcep.cli.language_model import BaseUrl, Cache, Offline, chat_model
from hcep.cli.predict import Model
from hcep.errors import HCEPError

if TYPE_CHECKING:
    from hcep.embeddings import Embeddings, EmbeddingStore
    from hcep.explain.naming import Interpretation
    from hcep.llm import ChatModel

#: Atoms listed where no table is asked for, and warnings of a language model's failures.
LISTED, WARNED = 20, 10


def interpret(
    model: Model,
    *,
    phrases: Annotated[
        Path | None,
        typer.Option(help="Candidate phrases, one per line; or an .npz of `phrases` and their `embeddings`."),
    ] = None,
    vocabulary: Annotated[Path | None, typer.Option(help="More candidates, one word or phrase per line.")] = None,
    glosses: Annotated[bool, typer.Option(help="WordNet's definitions as candidates, too (ImageNet's ids).")] = False,
    describe: Annotated[
        int | None, typer.Option(min=0, help="Candidates per pair that the language model writes.")
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
    base_url: BaseUrl = None,
    cache: Cache = None,
    offline: Offline = False,
    rounds: Annotated[int, typer.Option(min=1, help="Answers to ask for before an atom is given up.")] = 3,
    top_k: Annotated[int, typer.Option("--top-k", "-k", min=1, help="Phrases, or images, per atom.")] = 10,
    synset: Annotated[
        list[str] | None, typer.Option("--concept", "--synset", help="Only atoms that lead to this one (id or name).")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Print the paper's table: pair, concepts, words.")] = False,
    format: Annotated[Literal["text", "markdown", "latex"], typer.Option(help="Of the table.")] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    config: Config = None,
) -> None:
    """Name the atoms of a model: nearest phrases, images along them, a language model's summary; kept with the model.

    Without anything to name them by, the names that the model has, or WordNet's definitions, are shown.
    """
    from hcep.explain import naming

    if format != "text" and not table:
        raise HCEPError(f"--format {format} is of the table; add --table")
    refusal = "--base-url, --cache and --offline are about a language model; say which with --llm-model"
    chat = chat_model(llm_model, base_url, refusal, cache=cache, offline=offline)
    if describe and chat is None:
        raise HCEPError("--describe: a language model writes these candidates; say which with --llm-model")
    found = naming.interpret(
        model,
        phrases=[path for path in (phrases, vocabulary) if path is not None],
        glosses=glosses,
        describe=describe,
        images=None if images is None else _images(images, split),
        chat=chat,
        encoder=encoder,
        preprocessing=preprocessing,
        template=template,
        center=center,
        top_k=top_k,
        rounds=rounds,
        synsets=synset or None,
        progress=not as_json,
    )
    for text in found.notes:
        _tell("dim", "note", text)
    if not found.names.atoms:
        raise HCEPError(
            "there is nothing to name the atoms by: give --phrases or --vocabulary (the encoder needs a text tower), "
            "--images, or --llm-model"
        )
    if as_json:
        say(json.dumps(_record(model, found, chat), indent=2, ensure_ascii=False))
        return
    for failure in found.failures[:WARNED]:
        _tell("yellow", "warning", str(failure))
    if len(found.failures) > WARNED:
        more = f"and {len(found.failures) - WARNED:,} more atoms without an accepted answer; --json has them all"
        _tell("yellow", "warning", more)
    if table:
        say(naming.interpretation_table(found.names, found.hierarchy, format, top_k=top_k))
    else:
        _print(model, found, chat)


def _images(path: Path, split: str | None) -> EmbeddingStore | Embeddings:
    from hcep.embeddings import EmbeddingStore, is_store, read_embeddings

    if not is_store(path):
        return read_embeddings(path, split)
    store = EmbeddingStore(path)
    return store.select(splits=split) if split else store


def _record(model: Path, found: Interpretation, chat: ChatModel | None) -> dict[str, Any]:
    name, names = found.hierarchy.name, found.names
    return {
        "model": str(model),
        **{key: getattr(names, key) for key in ("encoder", "template", "centered", "llm")},
        "usage": None if chat is None else asdict(chat.usage),
        "failures": [asdict(failure) for failure in found.failures],
        "atoms": [
            {
                **asdict(atom),
                "parent_name": name(atom.parent),
                "child_name": name(atom.child),
                "meaning": atom.meaning,
                "source": atom.source,
            }
            for atom in names
        ],
    }


def _print(model: Path, found: Interpretation, chat: ChatModel | None) -> None:
    console = Console(soft_wrap=True, highlight=False)
    name, atoms = found.hierarchy.name, found.names.atoms
    for atom in atoms[:LISTED]:
        images = ", ".join(image.id for image in atom.exemplars[:3])
        words = atom.meaning or images or "(nothing)"
        more = f"  (images {images})" if atom.meaning and images else ""
        console.print(
            f"[bold]{escape(name(atom.parent))} → {escape(name(atom.child))}[/]  {escape(words)}[dim]{escape(more)}[/]"
        )
    if len(atoms) > LISTED:
        console.print(f"[dim]and {len(atoms) - LISTED:,} more: --table shows all, --concept some[/]")
    sources = Counter(atom.source or "nothing" for atom in atoms)
    told = ", ".join(f"{n:,} by {source}" for source, n in sources.most_common())
    with_images = sum(bool(atom.exemplars) for atom in atoms)
    told += f"; {with_images:,} with images" if with_images else ""
    where = f"{'kept' if found.kept else 'not kept'} with {model}"
    console.print(f"{len(atoms):,} of {found.hierarchy.n_edges:,} atoms: {told}; {escape(where)}")
    if chat is not None:
        console.print(f"[dim]{escape(str(chat.usage))}[/]")


def _tell(colour: str, kind: str, text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"[{colour}]{kind}:[/] {escape(text)}", highlight=False)
