"""`hcep interpret`: describe the steps of a model in words and images, and save this with the model."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from hcep import embeddings
from hcep._files import refuse_existing, write_text
from hcep.cli import options as opt
from hcep.cli.config import Config
from hcep.cli.console import Console, escape, say, say_json, tell
from hcep.cli.options import option
from hcep.errors import HCEPError

#: Steps that are listed without --table, and warnings about a language model's failures that are printed.
LISTED, WARNED = 20, 10
#: Formats of the table, by the ending of the file.
TABLES: dict[str, Literal["text", "markdown", "latex"]] = {".md": "markdown", ".tex": "latex", ".txt": "text"}


def interpret(
    model: opt.Model,
    data: opt.OptionalData = None,
    *,
    vocabulary: opt.Vocabulary = None,
    glosses: Annotated[
        bool, option("Also try WordNet's definitions (for hierarchies with WordNet ids).", "--glosses")
    ] = False,
    llm: opt.Llm = None,
    base_url: opt.BaseUrl = None,
    describe: Annotated[
        int | None, option("Number of phrases per step that the language model writes.", "--describe N", min=0)
    ] = None,
    concept: opt.Concept = None,
    n_best: opt.NBest = None,
    table: Annotated[bool, option("Print the paper's table: step, description, phrases.", "--table")] = False,
    output: opt.OptionalOutput = None,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    encoder: opt.Encoder = None,
    split: opt.Split = None,
    template: opt.Template = None,
    parameter: opt.Parameter = None,
    cache: opt.Cache = None,
    offline: opt.Offline = False,
    config: Config = None,
) -> None:
    """Describe each concept step in words and save the descriptions with the model.

    A step leads from a concept to a narrower one. Words come from a vocabulary, from WordNet or from a language model;
    images from labelled DATA, which needs no text encoder. Without any of these, the saved descriptions or WordNet's
    definitions are shown. --output writes the table: .md, .tex or .txt. Parameters: center (subtract the mean of the
    phrases; the default from 100 phrases on), rounds (answers to ask for per step).
    """
    from hcep.taxonomy import naming

    if output is not None:
        refuse_existing(output, overwrite, "--output")
        if output.suffix not in TABLES:
            raise HCEPError(f"--output: expected a name ending in {', '.join(TABLES)}, got {str(output)!r}")
    if len(template or ()) > 1:
        raise HCEPError(f"--template: hcep interpret takes one template, got {len(template or ())}")
    chat = opt.chat_model(llm, base_url, cache=cache, offline=offline)
    if describe and chat is None:
        raise HCEPError("--describe: a language model writes these phrases; pass its name with --llm")
    top_k = n_best or 10
    result = naming.interpret(
        model,
        phrases=vocabulary or (),
        glosses=glosses,
        describe=describe,
        images=None if data is None else _images(data, split),
        chat=chat,
        encoder=encoder,
        template=template[0] if template else "{}",
        top_k=top_k,
        synsets=concept or None,
        progress=not as_json,
        **opt.parameters(parameter, also=("center", "rounds")),
    )
    for text in result.notes:
        tell(text, "note", "dim")
    if not result.names.atoms:
        ways = "give --vocabulary (the encoder needs a text tower), labelled DATA, or --llm"
        raise HCEPError(f"there are no words or images to describe the steps with: {ways}")
    if output is not None:
        write_text(
            output, naming.interpretation_table(result.names, result.hierarchy, TABLES[output.suffix], top_k=top_k)
        )
    if as_json:
        say_json(_record(model, result, chat))
        return
    for (parent, child), reason in list(result.failures.items())[:WARNED]:
        tell(f"{parent} → {child}: {reason}", "warning")
    if len(result.failures) > WARNED:
        n_more = len(result.failures) - WARNED
        tell(f"and {n_more:,} more steps without an accepted answer; --json lists them all", "warning")
    if table:
        say(naming.interpretation_table(result.names, result.hierarchy, top_k=top_k))
    else:
        _print(model, result, chat)
    if output is not None:
        say(f"table: {output}")


def _images(path: Path, split: str | None) -> Any:
    from hcep.embeddings.files import is_store

    if not is_store(path):
        return embeddings.read_embeddings(path, split)
    store = embeddings.EmbeddingStore(path)
    return store.select(splits=split) if split else store


def _record(model: Path, result: Any, chat: Any) -> dict[str, Any]:
    name, names = result.hierarchy.name, result.names
    atoms = []
    for atom in names:
        known = {"parent_name": name(atom.parent), "child_name": name(atom.child)}
        atoms.append({**asdict(atom), **known, "meaning": atom.meaning, "source": atom.source})
    return {
        "model": model,
        **{key: getattr(names, key) for key in ("encoder", "template", "centered", "llm")},
        "usage": None if chat is None else asdict(chat.usage),
        "failures": [{"parent": p, "child": c, "reason": reason} for (p, c), reason in result.failures.items()],
        "atoms": atoms,
    }


def _print(model: Path, result: Any, chat: Any) -> None:
    console = Console(soft_wrap=True, highlight=False)
    name, atoms = result.hierarchy.name, result.names.atoms
    for atom in atoms[:LISTED]:
        images = ", ".join(image.id for image in atom.exemplars[:3])
        words = atom.meaning or images or "(nothing)"
        more = f"  (images {images})" if atom.meaning and images else ""
        pair = f"{escape(name(atom.parent))} → {escape(name(atom.child))}"
        console.print(f"[bold]{pair}[/]  {escape(words)}[dim]{escape(more)}[/]")
    if len(atoms) > LISTED:
        console.print(f"[dim]and {len(atoms) - LISTED:,} more: --table shows all of them, --concept only one[/]")
    sources = Counter(atom.source or "nothing" for atom in atoms)
    counts = ", ".join(f"{n:,} by {source}" for source, n in sources.most_common())
    with_images = sum(bool(atom.exemplars) for atom in atoms)
    counts += f"; {with_images:,} with images" if with_images else ""
    where = f"{'saved' if result.kept else 'not saved'} with {model}"
    console.print(f"{len(atoms):,} of {result.hierarchy.n_edges:,} steps: {counts}; {escape(where)}")
    if chat is not None:
        console.print(f"[dim]{escape(str(chat.usage))}[/]")
