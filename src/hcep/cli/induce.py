"""`hcep induce`: a hierarchy for classes that have none, by a language model, from embeddings or from WordNet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hcep import embeddings as emb
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.console import Console, say, say_json, show_notes, tell
from hcep.cli.hierarchy_edits import labelled
from hcep.cli.options import argument, option
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy, write_hierarchy
from hcep.hierarchy.files import in_words
from hcep.hierarchy.formats import find_format
from hcep.taxonomy import WordNet, induction
from hcep.taxonomy.induction.induced import Induced, read_names

_CHAT = ("max_tokens", "timeout")
#: The parameters of each method.
PARAMETERS = {
    "llm": ("root", "max_rounds", *_CHAT),
    "geometry": ("root", "linkage", "gap", "max_branching"),
    "wordnet": ("database", "pos", "on_ambiguous"),
}
_TALKING, _SEEING = ("llm",), ("geometry",)
#: The methods that use an option, for options that not all methods use.
USED_BY = {
    **dict.fromkeys(("llm", "base_url", "cache", "offline", "record"), _TALKING),
    **dict.fromkeys(("split", "vectors", "labels", "encoder", "template", "vocabulary"), _SEEING),
    "collapse": ("wordnet",),
}


def induce(
    context: typer.Context,
    method: Annotated[
        Literal["llm", "geometry", "wordnet"], argument("Where the hierarchy comes from.", metavar="METHOD")
    ],
    source: Annotated[
        list[str],
        argument("File of class names (geometry: labelled data; wordnet: words).", metavar="SOURCE"),
    ],
    *,
    output: opt.Output,
    llm: opt.Llm = None,
    base_url: opt.BaseUrl = None,
    vocabulary: opt.Vocabulary = None,
    record: Annotated[Path | None, option("Write the conversation as JSON.", "--record FILE")] = None,
    parameter: opt.Parameter = None,
    collapse: opt.Collapse = False,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    split: opt.Split = None,
    encoder: opt.Encoder = None,
    template: opt.Template = None,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
    cache: opt.Cache = None,
    offline: opt.Offline = False,
) -> None:
    """Make a hierarchy for classes that have none; exit code 1 if some cannot be placed.

    llm: ask a language model; its key is read from OPENAI_API_KEY. Parameters: max_rounds, root, max_tokens,
    timeout.

    geometry: cluster the classes' mean embeddings; groups are named by --vocabulary or by their members.
    Parameters: linkage (ward or average), gap, max_branching, root.

    wordnet: look up words, synsets (cat.n.01), ids (n02121620), or files of them. Parameters: database, pos (noun or
    verb), on_ambiguous (raise or first).
    """
    _check_output(output, overwrite, record)
    for name, methods in USED_BY.items():
        if context.params[name] and method not in methods:
            raise HCEPError(f"--{name.replace('_', '-')} has no effect on `hcep induce {method}`; leave it out")
    parameters = opt.parameters(parameter, also=PARAMETERS[method])
    if method == "wordnet":
        _write(_from_wordnet(source, **parameters), collapse, output)
        return
    if len(source) > 1 or len(template or ()) > 1:
        raise HCEPError(f"hcep induce {method} takes one SOURCE and one --template")
    if method == "llm":
        if llm is None:
            raise HCEPError("hcep induce llm needs the name of a language model: pass --llm")
        talk = {name: parameters.pop(name) for name in _CHAT if name in parameters}
        chat = opt.chat_model(llm, base_url, cache=cache, offline=offline, **talk)
        induced = _by_llm(Path(source[0]), chat, parameters, as_json)
        if record is not None:
            induced.save_transcript(record)
    else:
        images = labelled(Path(source[0]), split, **opt.columns(vectors, labels))
        names, means = induction.class_means(images.X, images.y)
        tower = encoder or (images.encoder.name if images.encoder else None)
        words = _vocabulary(vocabulary, tower, (template or ["{}"])[0], means.shape[1]) if vocabulary else None
        induced = induction.induce_from_embeddings(means, names, names_from=words, **parameters)
    _finish(induced, output, as_json)


def _by_llm(classes: Path, chat: Any, parameters: dict[str, Any], as_json: bool) -> Induced:
    names = read_names(classes)
    console = Console(stderr=True, quiet=as_json, soft_wrap=True)

    def on_round(number: int, placement: Any) -> None:
        faults = ", ".join(sorted({problem.kind for problem in placement.problems})) or "no fault"
        console.print(f"round {number}: {len(placement.placed):,} of {len(names):,} classes placed; {faults}")

    return induction.induce_with_llm(names, chat, progress=on_round, **parameters)


def _from_wordnet(words: list[str], database: str | None = None, pos: Any = "noun", **options: Any) -> Hierarchy:
    lines = [Path(w).read_text("utf-8-sig").splitlines() if Path(w).is_file() else [w] for w in words]
    wanted = [line.strip() for several in lines for line in several if line.strip()]
    return WordNet(database, pos=pos).hierarchy(wanted, **options)


def _check_output(output: Path, overwrite: bool, record: Path | None) -> None:
    """Refuse outputs that cannot be written before anything is paid for."""
    find_format(output.name, None, to="write")
    refuse_existing(output, overwrite, "--output")
    refuse_existing(record, overwrite, "--record")
    if not output.absolute().parent.is_dir():
        raise HCEPError(f"--output: there is no folder {str(output.absolute().parent)!r}; make it first")


def _vocabulary(paths: list[Path], encoder: str | None, template: str, n_dims: int) -> tuple[tuple[str, ...], Any]:
    """Phrases and their embeddings: of a file, or of texts that the encoder embeds."""
    from hcep.embeddings.texts import is_embedded, read_text_vectors
    from hcep.taxonomy.naming.phrases import embed_phrases, read_phrases

    if len(paths) == 1 and is_embedded(paths[0]):
        return read_text_vectors(paths[0], n_dims)[:2]
    if encoder is None:
        raise HCEPError("--vocabulary: a text file needs --encoder, one with a text tower, to embed its phrases")
    phrases = tuple(phrase for path in paths for phrase in read_phrases(path))
    return phrases, embed_phrases(emb.load_encoder(encoder), phrases, template=template)


def _write(hierarchy: Hierarchy, collapse: bool, output: Path) -> None:
    hierarchy = hierarchy.collapse() if collapse else hierarchy
    show_notes(write_hierarchy(hierarchy, output))
    say(f"{output}: {in_words(hierarchy)}")


def _finish(induced: Induced, output: Path, as_json: bool) -> None:
    """Write the tree, print what is wrong with it, and end with exit code 1 if classes are missing from it."""
    write_hierarchy(induced.hierarchy, output)
    if as_json:
        say_json({"output": output, **induced.record()})
        raise typer.Exit(int(not induced.complete))
    say(induced.hierarchy.format_tree(max_children=12))
    say(f"\n{output}: {induced.hierarchy!r}")
    if induced.usage is not None:
        say(induced.usage)
    incomplete = [] if induced.complete else [f"the hierarchy is incomplete; check {output} before you use it"]
    for line in (*induced.summary().splitlines(), *incomplete):
        tell(line, "warning")
    raise typer.Exit(int(not induced.complete))
