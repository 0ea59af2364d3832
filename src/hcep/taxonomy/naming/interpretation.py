"""Names for a model's atoms in stages, each kept with the model before the next one starts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from hcep._checks import escape_markdown as escape, markdown_table
from hcep.dictionary import ConceptDictionary
from hcep.embeddings import Embeddings, EmbeddingStore, Encoder
from hcep.errors import HCEPError, HierarchyError, near_matches, quoted
from hcep.evaluate.table import escaped as latex
from hcep.hierarchy import Hierarchy
from hcep.models import ModelError, read_model, save_atom_names
from hcep.models.atom_names import AtomName, AtomNames
from hcep.models.model_encoder import load_model_encoder, refuse_other_encoder
from hcep.taxonomy.llm import ChatModel
from hcep.taxonomy.naming import phrases as pools
from hcep.taxonomy.naming.by_language_model import Failure, describe_atoms, summarize_atoms
from hcep.taxonomy.naming.nearest import exemplars, name_atoms

TableFormat = Literal["text", "markdown", "latex"]
_FORMATS = get_args(TableFormat)
HEAD = ("Parent → Child", "Top concepts", "Text interpretation")
#: Phrases a language model writes for a pair where nothing else is given, and images furthest against an atom.
DESCRIBED, CONTRASTED = 5, 3


@dataclass(frozen=True)
class Interpretation:
    """Names of the atoms in question, and what happened on the way."""

    names: AtomNames
    hierarchy: Hierarchy
    failures: tuple[Failure, ...]  #: atoms for which the language model gave no answer that passes
    notes: tuple[str, ...]  #: what a person should know, such as why definitions were not compared
    kept: bool  #: whether the names are in the model's folder


def interpret(
    model: str | PathLike[str] | ConceptDictionary,
    *,
    phrases: Sequence[str | Path] = (),
    glosses: bool = False,
    describe: int | None = None,
    images: EmbeddingStore | Embeddings | None = None,
    chat: ChatModel | None = None,
    encoder: Encoder | str | None = None,
    preprocessing: Any = None,
    template: str = "{}",
    center: bool = False,
    top_k: int = 10,
    rounds: int = 3,
    synsets: Iterable[str] | None = None,
    progress: bool = False,
) -> Interpretation:
    """Name the atoms of a model by the nearest phrases, images along them, and a language model's summary.

    Without anything to name them by, the names that the model has, or WordNet's definitions, are returned. Raises
    HCEPError: candidates that cannot be compared (no text tower, no known encoder, none left), images of another
    encoder or without labels, a summary without phrases.

    Parameters
    ----------
    model : a saved model, in whose folder the names of every stage are kept; or a dictionary, where nothing is
    phrases : candidates; a `Path` is a file of them, one per line, or an .npz of ``phrases`` and their ``embeddings``
    glosses : WordNet's definitions as candidates, too; attached to the atoms where they cannot be compared
    describe : candidates per pair that the language model writes; 5 by default where there are no others
    images : labelled images to show atoms by; no text tower is needed
    chat : sums up the phrases
    encoder, preprocessing : of the phrases; the model's own by default
    template, center : see `embed_phrases` and `name_atoms`
    top_k : phrases, or images, per atom
    rounds : answers to ask for before an atom is given up
    synsets : name only atoms that lead to these, given by id or display name
    progress : show progress bars
    """
    run = _Naming(model, synsets, encoder, preprocessing, {"rounds": rounds, "progress": progress})
    if describe is None:
        alone = not (phrases or glosses or any(atom.phrases for atom in run.chosen))
        describe = DESCRIBED if chat is not None and alone else 0
    compared = bool(phrases or glosses or describe)
    embedded = next((path for path in phrases if isinstance(path, Path) and path.suffix == ".npz"), None)
    if embedded is not None:
        if len(phrases) > 1 or glosses or describe:
            raise HCEPError(
                f"{str(embedded)!r} has its embeddings in it and is not compared together with other candidates; "
                "leave them out"
            )
        if template != "{}":
            raise HCEPError(
                f"--template: {str(embedded)!r} has its embeddings in it, made of whole texts; leave --template out"
            )
        pool, vectors = pools.read_embedded_phrases(embedded, run.dictionary.n_dims)
        run.add(name_atoms(run.dictionary, pool, vectors, top_k=top_k, center=center, edges=run.edges))
    elif compared and not (glosses and not phrases and not describe and run.attach_glosses()):
        text_encoder = run.text_encoder(template)
        pool = run.pool(phrases, glosses, describe, chat)
        vectors = pools.embed_phrases(text_encoder, pool, template=template, progress=progress)
        names = name_atoms(run.dictionary, pool, vectors, top_k=top_k, center=center, edges=run.edges)
        run.add(replace(names, encoder=text_encoder.name, template=template))
    if images is not None:
        run.add(run.shown(images, top_k))
    if chat is not None:
        run.sum_up(chat)
    if compared or images is not None:
        run.define()
    kept = run.folder is not None and bool(run.chosen)
    if not run.chosen:
        run.define(keep=False)
    names = replace(run.names, atoms=tuple(run.chosen))
    return Interpretation(names, run.hierarchy, tuple(run.failures), tuple(run.notes), kept)


def chosen_edges(hierarchy: Hierarchy, synsets: Iterable[str] | None = None) -> tuple[tuple[str, str], ...]:
    """Edges whose child is one of `synsets`, given by id or display name; all edges where it is None."""
    if synsets is None:
        return hierarchy.edges
    wanted: set[str] = set()
    for name in synsets:
        named = [synset for synset in hierarchy.ids if hierarchy.name(synset).casefold() == name.casefold()]
        found = [name] if name in hierarchy else named
        if not found:
            known = [*hierarchy.ids, *map(hierarchy.name, hierarchy.ids)]
            raise HierarchyError(f"no concept {name!r} in the hierarchy.{near_matches(name, known)}")
        if found == [hierarchy.root]:
            raise HierarchyError(f"{name!r} is the root: no atom leads to it; name one of the concepts below")
        wanted.update(found)
    return tuple(edge for edge in hierarchy.edges if edge[1] in wanted)


def with_glosses(names: AtomNames, glosses: Mapping[str, str]) -> AtomNames:
    """The names with the definition of each child that has one in `glosses`."""
    atoms = (replace(atom, gloss=glosses.get(atom.child, atom.gloss)) for atom in names)
    return replace(names, atoms=tuple(atoms))


class _Naming:
    """Which atoms of which model, and what is known of them by now."""

    def __init__(
        self,
        model: str | PathLike[str] | ConceptDictionary,
        synsets: Iterable[str] | None,
        encoder: Encoder | str | None,
        preprocessing: Any,
        asking: dict[str, Any],
    ) -> None:
        self.notes: list[str] = []
        self.failures: list[Failure] = []
        self.names, self._record, self.folder = AtomNames(()), None, None
        self._wanted, self._preprocessing, self._asking = encoder, preprocessing, asking
        if isinstance(model, ConceptDictionary):
            self.dictionary = model
        else:
            saved = read_model(model)
            self.folder, self.dictionary, self._record = saved.folder, saved.dictionary, saved.summary.encoder
            try:
                self.names = saved.atom_names or self.names
            except ModelError as error:
                # The model itself is sound, or it would not have loaded.
                self.notes.append(f"the names that were there cannot be read and are made anew ({error})")
        self.hierarchy = self.dictionary.hierarchy
        self.edges = chosen_edges(self.hierarchy, synsets)

    @property
    def chosen(self) -> list[AtomName]:
        """The known names of the atoms in question."""
        return [self.names[edge] for edge in self.edges if edge in self.names.by_edge]

    def add(self, newer: AtomNames, *, keep: bool = True) -> None:
        """Take in new names of these atoms, and write them to the model's folder."""
        wanted = set(self.edges)
        atoms = tuple(atom for edge, atom in newer.by_edge.items() if edge in wanted)
        self.names = self.names.updated(replace(newer, atoms=atoms)).ordered(self.hierarchy)
        if keep and self.folder is not None:
            save_atom_names(self.names, self.folder)

    @cached_property
    def _wordnet(self) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
        return pools.wordnet_words(self.hierarchy)

    def define(self, *, keep: bool = True) -> None:
        """WordNet's definition of every child that is in it."""
        glosses, _ = self._wordnet
        atoms = tuple(AtomName(*edge, gloss=glosses[edge[1]]) for edge in self.edges if edge[1] in glosses)
        if atoms:
            self.add(AtomNames(atoms), keep=keep)

    @cached_property
    def _encoder(self) -> Encoder | None:
        """The encoder of the model's embeddings; None where neither the model nor the user says which."""
        if self._wanted is None and self._record is None:
            return None
        return load_model_encoder(self._record, self.folder or "the model", self._wanted, self._preprocessing)

    def attach_glosses(self) -> bool:
        """Where there is no text space to compare definitions in, they say something of the atoms as they are."""
        if self._encoder is not None and self._encoder.has_text:
            return False
        if not self._wordnet[0]:
            self.notes.append("--glosses adds nothing: the hierarchy has none of WordNet's ids")
            return True
        known = "the model does not say which encoder it is of"
        why = f"encoder {self._encoder.name!r} has no text tower" if self._encoder else known
        self.notes.append(f"glosses are attached to the atoms, not compared with them: {why}")
        self.define()
        return True

    def text_encoder(self, template: str) -> Encoder:
        """The encoder, where it has a text tower: said before anything is paid for."""
        if self._encoder is None:
            raise HCEPError(
                f"{str(self.folder or 'the model')!r} does not say which encoder its embeddings are of, so phrases "
                "cannot be compared; pass --encoder, give --phrases an .npz of phrases and embeddings, or show atoms "
                "by --images"
            )
        pools.embed_phrases(self._encoder, (), template=template)
        return self._encoder

    def pool(
        self, phrases: Sequence[str | Path], glosses: bool, describe: int, chat: ChatModel | None
    ) -> tuple[str, ...]:
        """All candidates, each once."""
        found = [pools.read_phrases(some) if isinstance(some, Path) else (some,) for some in phrases]
        if glosses:
            found.append(pools.gloss_phrases(self._wordnet[0]))
        if describe and chat is not None:
            options = {**self._asking, "edges": self.edges, "aliases": self._wordnet[1]}
            described = describe_atoms(self.hierarchy, chat, n_phrases=describe, **options)
            found.append(described.pool)
            self.failures += described.failures
        pool = pools.merge_pools(*found)
        if not pool:
            reason = f": {self.failures[0]}" if self.failures else "; --glosses needs a hierarchy of WordNet's ids"
            raise HCEPError(f"there is no candidate phrase to compare with{reason}")
        return pool

    def shown(self, images: EmbeddingStore | Embeddings, top_k: int) -> AtomNames:
        """The images that lie furthest along each atom, and a few that lie furthest against it; a store is streamed."""
        known = images
        if isinstance(known, EmbeddingStore):
            known = Embeddings(np.empty(0), known.labels, known.ids, known.encoder, str(known.folder))
        refuse_other_encoder(self._record, known.encoder, known.source)
        whole = [(known.X, known.y)]  # says so where an image has no label
        found = images.batches() if isinstance(images, EmbeddingStore) else whole
        return exemplars(self.dictionary, found, ids=known.ids, top_k=top_k, contrast=CONTRASTED)

    def sum_up(self, chat: ChatModel) -> None:
        """The language model's summaries of the phrases."""
        if not any(atom.phrases for atom in self.chosen):
            raise HCEPError(
                "the atoms have no phrases to sum up: give candidates (--phrases, --vocabulary, --describe), "
                "which need an encoder with a text tower"
            )
        names = replace(self.names, atoms=tuple(self.chosen))
        found = summarize_atoms(names, self.hierarchy, chat, aliases=self._wordnet[1], **self._asking)
        self.add(found.names)
        self.failures += found.failures


def interpretation_table(
    atoms: Iterable[AtomName], hierarchy: Hierarchy, format: TableFormat = "text", *, top_k: int = 10
) -> str:
    """Set names of atoms as a table, every text in it escaped for the format.

    Where an atom has images but no phrases, its concepts are the images; where it has both, the text has the images
    below the phrases. Raises HCEPError: for an unknown format.

    >>> from hcep.taxonomy.naming import Phrase
    >>> h = Hierarchy.from_edges([("bear", "polar bear"), ("bear", "panda")])
    >>> atom = AtomName("bear", "polar bear", (Phrase("matte white texture", 0.31),), summary="thick white winter fur")
    >>> print(interpretation_table([atom], h, "markdown"))
    | Parent → Child | Top concepts | Text interpretation |
    |---|---|---|
    | bear → polar bear | matte white texture | thick white winter fur |

    Parameters
    ----------
    atoms : such as an `AtomNames`
    hierarchy : for display names
    format : "text", "markdown" or "latex", which needs the packages booktabs and enumitem
    top_k : concepts, and images, per row
    """
    if format not in _FORMATS:
        raise HCEPError(f"format must be one of {quoted(_FORMATS)}, got {format!r}.{near_matches(format, _FORMATS)}")
    named = [(hierarchy.name(atom.parent), hierarchy.name(atom.child), atom) for atom in atoms]
    if format == "text":
        return "\n".join(_text(*one, top_k) for one in named)
    if format == "latex":
        return _LATEX_HEAD + "    \\midrule\n".join(_latex(*one, top_k) for one in named) + _LATEX_FOOT
    rows = [
        (f"{parent} → {child}", "; ".join(text for text, _ in _concepts(atom, top_k)), atom.meaning or "")
        for parent, child, atom in named
    ]
    return markdown_table(HEAD, [[escape(cell) for cell in row] for row in rows]).rstrip("\n")


def _concepts(atom: AtomName, top_k: int) -> list[tuple[str, float]]:
    if atom.phrases:
        return [(phrase.text, phrase.score) for phrase in atom.phrases[:top_k]]
    return [(image.id, image.projection) for image in atom.exemplars[:top_k]]


def _text(parent: str, child: str, atom: AtomName, top_k: int) -> str:
    def listed(pairs: Iterable[tuple[str, float]]) -> str:
        return ", ".join(f"{text} {value:.2f}" for text, value in pairs)

    images = atom.exemplars[:top_k] if atom.phrases else ()
    lists = {
        "": listed(_concepts(atom, top_k)),
        "images ": listed((image.id, image.projection) for image in images),
        "unlike ": listed((image.id, image.projection) for image in atom.contrast),
    }
    lines = [atom.meaning or "(no words for it)", *(title + items for title, items in lists.items() if items)]
    return "\n    ".join([f"{parent} → {child}", *lines])


def _latex(parent: str, child: str, atom: AtomName, top_k: int) -> str:
    items = "".join(f"      \\item {latex(text)}\n" for text, _ in _concepts(atom, top_k))
    listed = f"    \\begin{{enumerate}}[leftmargin=*, nosep]\n{items}    \\end{{enumerate}}" if items else "    "
    pair = " $\\rightarrow$ ".join(f"\\texttt{{{latex(name)}}}" for name in (parent, child))
    return f"    {pair} &\n{listed} &\n    {latex(atom.meaning or '')} \\\\\n"


_LATEX_HEAD = r"""\begin{tabular}{l p{0.35\linewidth} p{0.35\linewidth}}
    \toprule
    Parent $\rightarrow$ Child & Top concepts & Text interpretation \\
    \midrule
"""
_LATEX_FOOT = "    \\bottomrule\n\\end{tabular}"
