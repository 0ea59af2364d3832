"""`hcep interpret`: words and images for the atoms of a model, kept with it."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from hcep import embeddings
from hcep._checks import escape_markup as escape
from hcep.cli import options as opt
from hcep.cli.console import Console, say, say_json, tell
from hcep.cli.options import option
from hcep.errors import HCEPError

#: Atoms listed where no table is asked for, and warnings of a language model's failures.
LISTED, WARNED = 20, 10


def interpret(
    model: opt.Model,
    *,
    phrases: Annotated[Path | None, option("Candidates, one per line; or .npz of `phrases`, `embeddings`.")] = None,
    vocabulary: Annotated[Path | None, option("More candidates, one word or phrase per line.")] = None,
    glosses: Annotated[bool, option("WordNet's definitions as candidates, too (ImageNet's ids).")] = False,
    describe: Annotated[int | None, option("Candidates per pair that the language model writes.", min=0)] = None,
    encoder: opt.OwnEncoder = None,
    preprocessing: opt.Preprocessing = None,
    template: Annotated[str, option("What a phrase is put into, such as 'a photo of {}'.")] = "{}",
    center: Annotated[bool, option("Subtract the mean of the phrases' embeddings.")] = False,
    images: Annotated[Path | None, option("Store or file: show atoms by these images, without text.")] = None,
    split: Annotated[str | None, option("Split of the images; all by default.")] = None,
    llm_model: Annotated[str | None, option("Language model that sums up the phrases.")] = None,
    base_url: opt.BaseUrl = None,
    cache: opt.Cache = None,
    offline: opt.Offline = False,
    rounds: Annotated[int, option("Answers to ask for before an atom is given up.", min=1)] = 3,
    top_k: Annotated[int, option("Phrases, or images, per atom.", "--top-k", "-k", min=1)] = 10,
    synset: Annotated[list[str] | None, option("Only what leads to it (id, name).", "--concept", "--synset")] = None,
    table: Annotated[bool, option("Print the paper's table: pair, concepts, words.", "--table")] = False,
    format: Annotated[Literal["text", "markdown", "latex"], option("Of the table.")] = "text",
    as_json: opt.Json = False,
    config: opt.Config = None,
) -> None:
    """Name the atoms of a model: nearest phrases, images along them, a language model's summary; kept with the model.

    Without anything to name them by, the names that the model has, or WordNet's definitions, are shown.
    """
    from hcep.taxonomy import naming

    if format != "text" and not table:
        raise HCEPError(f"--format {format} is of the table; add --table")
    refusal = "--base-url, --cache and --offline are about a language model; say which with --llm-model"
    chat = opt.chat_model(llm_model, base_url, refusal, cache=cache, offline=offline)
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
        tell(text, "note", "dim")
    if not found.names.atoms:
        ways = "give --phrases or --vocabulary (the encoder needs a text tower), --images, or --llm-model"
        raise HCEPError(f"there is nothing to name the atoms by: {ways}")
    if as_json:
        say_json(_record(model, found, chat))
        return
    for (parent, child), reason in list(found.failures.items())[:WARNED]:
        tell(f"{parent} → {child}: {reason}", "warning")
    if len(found.failures) > WARNED:
        n_more = len(found.failures) - WARNED
        tell(f"and {n_more:,} more atoms without an accepted answer; --json has them all", "warning")
    if table:
        say(naming.interpretation_table(found.names, found.hierarchy, format, top_k=top_k))
    else:
        _print(model, found, chat)


def _images(path: Path, split: str | None) -> Any:
    if not embeddings.is_store(path):
        return embeddings.read_embeddings(path, split)
    store = embeddings.EmbeddingStore(path)
    return store.select(splits=split) if split else store


def _record(model: Path, found: Any, chat: Any) -> dict[str, Any]:
    name, names = found.hierarchy.name, found.names
    atoms = []
    for atom in names:
        known = {"parent_name": name(atom.parent), "child_name": name(atom.child)}
        atoms.append({**asdict(atom), **known, "meaning": atom.meaning, "source": atom.source})
    return {
        "model": model,
        **{key: getattr(names, key) for key in ("encoder", "template", "centered", "llm")},
        "usage": None if chat is None else asdict(chat.usage),
        "failures": [{"parent": p, "child": c, "reason": reason} for (p, c), reason in found.failures.items()],
        "atoms": atoms,
    }


def _print(model: Path, found: Any, chat: Any) -> None:
    console = Console(soft_wrap=True, highlight=False)
    name, atoms = found.hierarchy.name, found.names.atoms
    for atom in atoms[:LISTED]:
        images = ", ".join(image.id for image in atom.exemplars[:3])
        words = atom.meaning or images or "(nothing)"
        more = f"  (images {images})" if atom.meaning and images else ""
        pair = f"{escape(name(atom.parent))} → {escape(name(atom.child))}"
        console.print(f"[bold]{pair}[/]  {escape(words)}[dim]{escape(more)}[/]")
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
