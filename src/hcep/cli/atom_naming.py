"""The stages of `hcep interpret`; each keeps what it found with the model before the next one starts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from hcep.errors import HCEPError, quoted

if TYPE_CHECKING:
    from hcep.dictionary import ConceptDictionary
    from hcep.embeddings import Encoder
    from hcep.explain.naming import AtomName, AtomNames, Failure
    from hcep.hierarchy import Hierarchy
    from hcep.llm import ChatModel


@dataclass(frozen=True)
class Task:
    """Which atoms of which model, and the names that are known by now."""

    model: Path
    dictionary: ConceptDictionary
    edges: tuple[tuple[str, str], ...]
    names: AtomNames
    quiet: bool

    @property
    def hierarchy(self) -> Hierarchy:
        return self.dictionary.hierarchy

    @property
    def chosen(self) -> list[AtomName]:
        """The known names of the atoms in question."""
        return [self.names[edge] for edge in self.edges if edge in self.names.by_edge]

    def take(self, newer: AtomNames) -> Task:
        """Take in new names of these atoms."""
        wanted = set(self.edges)
        atoms = tuple(atom for atom in newer if (atom.parent, atom.child) in wanted)
        return replace(self, names=self.names.updated(replace(newer, atoms=atoms)).ordered(self.hierarchy))

    def keep(self, newer: AtomNames) -> Task:
        """Take in new names of these atoms and write them to the model's folder."""
        from hcep.models import save_atom_names

        task = self.take(newer)
        save_atom_names(task.names, self.model)
        return task


@dataclass(frozen=True)
class Candidates:
    """Where candidate phrases come from, and how they are compared."""

    files: tuple[Path, ...]
    glosses: bool
    n_described: int
    template: str
    center: bool
    top_k: int

    def __bool__(self) -> bool:
        return bool(self.files or self.glosses or self.n_described)

    @property
    def only_glosses(self) -> bool:
        """Nothing but definitions, which say something of the atoms even where they cannot be compared."""
        return self.glosses and not (self.files or self.n_described)

    @property
    def embedded(self) -> Path | None:
        """The .npz among the files, which has the embeddings in it."""
        found = [path for path in self.files if path.suffix == ".npz"]
        if found and (len(self.files) > 1 or self.glosses or self.n_described):
            raise HCEPError(
                f"{str(found[0])!r} has its embeddings in it and is not compared together with other candidates; "
                "leave them out"
            )
        if found and self.template != "{}":
            raise HCEPError(
                f"--template: {str(found[0])!r} has its embeddings in it, made of whole texts; leave --template out"
            )
        return found[0] if found else None


def start(model: Path, synsets: Sequence[str] | None, quiet: bool) -> Task:
    """Load the model and the names it has."""
    from hcep.explain.naming import AtomNames, chosen_edges
    from hcep.models import ModelError, load_atom_names, load_path_model

    dictionary = load_path_model(model).dictionary
    try:
        names = load_atom_names(model)
    except ModelError as error:
        # The model itself is sound, or it would not have loaded.
        warn(f"the names that were there cannot be read and are made anew ({error})")
        names = None
    edges = chosen_edges(dictionary.hierarchy, synsets or None)
    return Task(model, dictionary, edges, names or AtomNames(()), quiet)


def name_by_phrases(
    task: Task,
    candidates: Candidates,
    encoder: str | None,
    preprocessing: str | None,
    chat: ChatModel | None,
    rounds: int,
) -> tuple[Task, tuple[Failure, ...]]:
    """The nearest of all candidates, in the text space of the model's encoder.

    Definitions alone, without a text space to compare them in, are attached to the atoms.
    """
    from hcep.explain.naming import embed_phrases, name_atoms

    failures: tuple[Failure, ...] = ()
    if candidates.embedded is not None:
        pool, vectors = read_embedded(candidates.embedded, task.dictionary.n_dims)
        adapter_name, template = None, None
    else:
        adapter = _encoder(task, encoder, preprocessing)
        if candidates.only_glosses and not (adapter and adapter.has_text):
            return _attach(task, adapter), ()
        if adapter is None:
            raise HCEPError(
                f"{str(task.model)!r} does not say which encoder its embeddings are of, so phrases cannot be compared; "
                "pass --encoder, give --phrases an .npz of phrases and embeddings, or show atoms by --images"
            )
        embed_phrases(adapter, (), template=candidates.template)  # no text tower: said before anything is paid for
        pool, failures = _pool(task, candidates, chat, rounds)
        vectors = embed_phrases(adapter, pool, template=candidates.template, progress=not task.quiet)
        adapter_name, template = adapter.name, candidates.template
    names = name_atoms(
        task.dictionary, pool, vectors, top_k=candidates.top_k, center=candidates.center, edges=task.edges
    )
    return task.keep(replace(names, encoder=adapter_name, template=template)), failures


def _encoder(task: Task, wanted: str | None, preprocessing: str | None) -> Encoder | None:
    """The encoder of the model's embeddings; None where neither the model nor the user says which."""
    from hcep.cli.explain import encoder_of
    from hcep.models import load_summary

    if wanted is None and load_summary(task.model).encoder is None:
        return None
    return encoder_of(task.model, wanted, preprocessing)


def _attach(task: Task, encoder: Encoder | None) -> Task:
    if not wordnet_glosses(task.hierarchy):
        note("--glosses adds nothing: the hierarchy has none of WordNet's ids")
        return task
    why = f"encoder {encoder.name!r} has no text tower" if encoder else "the model does not say which encoder it is of"
    note(f"glosses are attached to the atoms, not compared with them: {why}")
    return define(task)


def _pool(
    task: Task, candidates: Candidates, chat: ChatModel | None, rounds: int
) -> tuple[tuple[str, ...], tuple[Failure, ...]]:
    from hcep.explain.naming import describe_atoms, gloss_phrases, merge_pools, read_phrases

    pools: list[tuple[str, ...]] = [read_phrases(path) for path in candidates.files]
    failures: tuple[Failure, ...] = ()
    if candidates.glosses:
        pools.append(gloss_phrases(wordnet_glosses(task.hierarchy)))
    if candidates.n_described and chat is not None:
        described = describe_atoms(
            task.hierarchy,
            chat,
            edges=task.edges,
            n_phrases=candidates.n_described,
            aliases=wordnet_lemmas(task.hierarchy),
            rounds=rounds,
            progress=not task.quiet,
        )
        pools.append(described.pool)
        failures = described.failures
    pool = merge_pools(*pools)
    if not pool:
        reasons = f": {failures[0]}" if failures else "; --glosses needs a hierarchy of WordNet's ids"
        raise HCEPError(f"there is no candidate phrase to compare with{reasons}")
    return pool, failures


def read_embedded(path: Path, n_dims: int) -> tuple[tuple[str, ...], NDArray[Any]]:
    """Phrases and their embeddings from an .npz, for text towers that run elsewhere."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in ("phrases", "embeddings") if name not in archive.files]
            if missing:
                raise HCEPError(f"{path}: no array {quoted(missing)} in it; there are {quoted(archive.files)}")
            phrases, vectors = archive["phrases"], archive["embeddings"]
    except (OSError, ValueError) as error:
        if isinstance(error, HCEPError):
            raise
        raise HCEPError(f"cannot read phrases from {str(path)!r}: {error}") from None
    if phrases.ndim != 1 or phrases.dtype.kind != "U":
        raise HCEPError(f"{path}: phrases must be a list of texts, got {phrases.dtype} of shape {phrases.shape}")
    if vectors.ndim == 2 and vectors.shape[1] != n_dims:
        raise HCEPError(
            f"{path}: embeddings of phrases have {vectors.shape[1]:,} dimensions, the model's {n_dims:,}; "
            "embed the phrases by the text tower of the model's encoder"
        )
    return tuple(str(phrase) for phrase in phrases), vectors


def show_by_images(task: Task, images: Path, split: str | None, top_k: int) -> Task:
    """The images that lie furthest along each atom, and a few that lie furthest against it; a store is streamed."""
    from hcep.cli.inputs import Embeddings, is_store, read_embeddings
    from hcep.cli.predict import check_encoder
    from hcep.explain.naming import exemplars

    if is_store(images):
        from hcep.embeddings import EmbeddingStore
        from hcep.models.card import encoder_record

        store = EmbeddingStore(images)
        store = store.select(splits=split) if split else store
        found = Embeddings(np.empty(0), store.labels, store.ids, encoder_record(store.encoder), str(images))
        check_encoder(task.model, found)
        found.y  # noqa: B018  says so where images have no labels
        names = exemplars(task.dictionary, store.batches(), ids=store.ids, top_k=top_k, contrast=3)
    else:
        found = read_embeddings(images, split)
        check_encoder(task.model, found)
        names = exemplars(task.dictionary, found.X, found.y, found.ids, top_k, contrast=3)
    return task.keep(names)


def sum_up(task: Task, chat: ChatModel, rounds: int) -> tuple[Task, tuple[Failure, ...]]:
    """The language model's summaries of the phrases."""
    from hcep.explain.naming import summarize_atoms

    if not any(atom.phrases for atom in task.chosen):
        raise HCEPError(
            "the atoms have no phrases to sum up: give candidates (--phrases, --vocabulary, --describe), "
            "which need an encoder with a text tower"
        )
    found = summarize_atoms(
        replace(task.names, atoms=tuple(task.chosen)),
        task.hierarchy,
        chat,
        aliases=wordnet_lemmas(task.hierarchy),
        rounds=rounds,
        progress=not task.quiet,
    )
    return task.keep(found.names), found.failures


def define(task: Task, *, keep: bool = True) -> Task:
    """WordNet's definition of every child that is in it; with `keep`, written to the model's folder."""
    from hcep.explain.naming import AtomName, AtomNames

    glosses = wordnet_glosses(task.hierarchy)
    atoms = [AtomName(p, c, gloss=glosses[c]) for p, c in task.edges if c in glosses]
    names = AtomNames(tuple(atoms))
    return task.keep(names) if atoms and keep else task.take(names)


def wordnet_glosses(hierarchy: Hierarchy) -> dict[str, str]:
    """WordNet's definitions of the synsets that have one of its ids, without the examples of use behind them."""
    from hcep.datasets import synset_gloss

    return {synset: synset_gloss(wnid).split('; "')[0] for synset, wnid in _wordnet_ids(hierarchy).items()}


def wordnet_lemmas(hierarchy: Hierarchy) -> Mapping[str, Sequence[str]]:
    """WordNet's names of the synsets that have one of its ids."""
    from hcep.datasets import synset_lemmas

    return {synset: synset_lemmas(wnid) for synset, wnid in _wordnet_ids(hierarchy).items()}


def _wordnet_ids(hierarchy: Hierarchy) -> dict[str, str]:
    # By id alone: a user's own "crane" need not be WordNet's.
    ids = {synset: hierarchy.class_of(synset) for synset in hierarchy.ids}
    ids = {synset: wnid for synset, wnid in ids.items() if re.fullmatch(r"n\d{8}", wnid)}
    if not ids:
        return {}
    from hcep.datasets import imagenet_hierarchy

    known = imagenet_hierarchy()
    return {synset: wnid for synset, wnid in ids.items() if wnid in known}


def note(text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"[dim]note:[/] {escape(text)}", highlight=False)


def warn(text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"[yellow]warning:[/] {escape(text)}", highlight=False)


def warn_of(failures: Iterable[Failure], limit: int = 10) -> None:
    """Tell which atoms got no words from the language model."""
    told = list(failures)
    for failure in told[:limit]:
        warn(str(failure))
    if len(told) > limit:
        warn(f"and {len(told) - limit:,} more atoms without an accepted answer; --json has them all")
