"""Names for a model's atoms in stages, each saved with the model before the next one starts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from hcep._checks import escape_markdown as escape, markdown_table
from hcep.dictionary import ConceptDictionary
from hcep.embeddings import Embeddings, EmbeddingStore, Encoder
from hcep.embeddings.texts import is_embedded, read_text_vectors
from hcep.errors import HCEPError, HierarchyError, near_matches, quote, quoted
from hcep.evaluate.table import escaped as latex
from hcep.hierarchy import Hierarchy
from hcep.models import ModelError, read_model
from hcep.models.atom_names import AtomName, AtomNames, save_atom_names
from hcep.models.model_encoder import load_model_encoder, refuse_other_encoder
from hcep.taxonomy.llm import ChatModel
from hcep.taxonomy.naming import phrases as pools
from hcep.taxonomy.naming.language_model import Edge, Failures, describe_atoms, summarize_atoms
from hcep.taxonomy.naming.nearest import exemplars, name_atoms

TableFormat = Literal["text", "markdown", "latex"]
_FORMATS = get_args(TableFormat)
HEAD = ("Parent → Child", "Top concepts", "Text interpretation")
#: Phrases that a language model writes per atom when there are no other candidates.
N_DESCRIBED = 5
#: Images shown that lie furthest against an atom.
N_CONTRAST = 3


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
    center: bool | None = None,
    top_k: int = 10,
    rounds: int = 3,
    synsets: Iterable[str] | None = None,
    progress: bool = False,
) -> "Interpretation":
    """Describe a model's atoms by the nearest phrases, by images, and by a language model's summary.

    Without any source of names, the result has the names that the model already has, or WordNet's definitions.

    Parameters
    ----------
    model : a saved model, whose folder keeps the names of every stage; or a dictionary
    phrases : candidates; a `Path` is a text file with one phrase per line, or one that
        `hcep.embeddings.texts.read_text_vectors` reads
    glosses : use WordNet's definitions as candidates; they are attached to the atoms if they cannot be compared
    describe : candidates per atom that the language model writes; 5 by default if there are no others
    images : labelled images to show with the atoms; this needs no text tower
    chat : the language model that summarises the phrases
    encoder, preprocessing : for the phrases; the model's own by default
    template, center : see `embed_phrases` and `name_atoms`
    top_k : phrases, and images, per atom
    rounds : maximum number of answers per atom
    synsets : name only the atoms that lead to these concepts (ids or names)
    progress : show progress bars
    """
    run = Interpretation(model, synsets, encoder, preprocessing, {"rounds": rounds, "progress": progress})
    if describe is None:
        alone = not (phrases or glosses or any(atom.phrases for atom in run.chosen))
        describe = N_DESCRIBED if chat is not None and alone else 0
    compared = bool(phrases or glosses or describe)
    nearest: Any = {"top_k": top_k, "center": center, "edges": run.edges}
    embedded = next((path for path in phrases if isinstance(path, Path) and is_embedded(path)), None)
    if embedded is not None:
        if len(phrases) > 1 or glosses or describe:
            raise HCEPError(f"{str(embedded)!r} contains embeddings and cannot be combined with other candidates")
        if template != "{}":
            raise HCEPError(f"--template has no effect on {str(embedded)!r}, which contains embeddings; leave it out")
        pool, vectors, note = read_text_vectors(embedded, run.dictionary.n_dims)
        run.notes.append(note)
        run.add(name_atoms(run.dictionary, pool, vectors, **nearest))
    elif compared and not (glosses and not phrases and not describe and run.attach_glosses()):
        text_encoder = run.text_encoder(template)
        pool = run.pool(phrases, glosses, describe, chat)
        vectors = pools.embed_phrases(text_encoder, pool, template=template, progress=progress)
        names = name_atoms(run.dictionary, pool, vectors, **nearest)
        run.add(replace(names, encoder=text_encoder.name, template=template))
    if images is not None:
        run.add(run.exemplars(images, top_k))
    if chat is not None:
        run.summarize(chat)
    if compared or images is not None:
        run.define()
    run.kept = run.folder is not None and bool(run.chosen)
    if not run.chosen:
        run.define(keep=False)
    run.names = replace(run.names, atoms=tuple(run.chosen))
    return run


def chosen_edges(hierarchy: Hierarchy, synsets: Iterable[str] | None = None) -> tuple[Edge, ...]:
    """The edges that lead to some concepts, given as `Hierarchy.find` takes them; all edges by default."""
    if synsets is None:
        return hierarchy.edges
    children = set(map(hierarchy.find, synsets))
    if hierarchy.root in children:
        raise HierarchyError(f"{quote(hierarchy.root)} is the root: no atom leads to it; choose a concept below it")
    return tuple(edge for edge in hierarchy.edges if edge[1] in children)


class Interpretation:
    """The chosen atoms of a model, and what is known of them so far.

    Attributes
    ----------
    names : of the chosen atoms, once `interpret` is done
    failures : for each atom without an accepted answer of the language model, the reason
    notes : what a person should know, such as why definitions were not compared
    kept : whether the names are saved in the model's folder
    """

    def __init__(
        self,
        model: str | PathLike[str] | ConceptDictionary,
        synsets: Iterable[str] | None,
        encoder: Encoder | str | None,
        preprocessing: Any,
        asking: dict[str, Any],
    ) -> None:
        self.notes: list[str] = []
        self.failures: Failures = {}
        self.kept = False
        self.names, self._record, self.folder = AtomNames(()), None, None
        self._wanted, self._preprocessing, self._asking = encoder, preprocessing, asking
        if isinstance(model, ConceptDictionary):
            self.dictionary = model
        else:
            saved = read_model(model)
            self.folder, self.dictionary, self._record = saved.folder, saved.dictionary, saved.encoder
            try:
                self.names = saved.atom_names or self.names
            except ModelError as error:
                # The model itself is sound, or it would not have loaded.
                self.notes.append(f"the saved names cannot be read and will be replaced ({error})")
        self.hierarchy = self.dictionary.hierarchy
        self.edges = chosen_edges(self.hierarchy, synsets)

    @property
    def chosen(self) -> list[AtomName]:
        """The known names of the chosen atoms."""
        return [self.names[edge] for edge in self.edges if edge in self.names.by_edge]

    def add(self, newer: AtomNames, *, keep: bool = True) -> None:
        """Add new names of the chosen atoms, and save them in the model's folder."""
        chosen = set(self.edges)
        atoms = tuple(atom for edge, atom in newer.by_edge.items() if edge in chosen)
        self.names = self.names.updated(replace(newer, atoms=atoms)).ordered(self.hierarchy)
        if keep and self.folder is not None:
            save_atom_names(self.names, self.folder)

    @cached_property
    def _wordnet(self) -> tuple[dict[str, str], dict[str, Sequence[str]]]:
        return pools.wordnet_words(self.hierarchy)

    def define(self, *, keep: bool = True) -> None:
        """Add WordNet's definition of every child that has one."""
        glosses, _ = self._wordnet
        atoms = tuple(AtomName(*edge, gloss=glosses[edge[1]]) for edge in self.edges if edge[1] in glosses)
        if atoms:
            self.add(AtomNames(atoms), keep=keep)

    @cached_property
    def _encoder(self) -> Encoder | None:
        """The encoder of the model's embeddings; None if neither the model nor the user names one."""
        if self._wanted is None and self._record is None:
            return None
        return load_model_encoder(self._record, self.folder or "the model", self._wanted, self._preprocessing)

    def attach_glosses(self) -> bool:
        """Without a text tower, attach definitions to the atoms instead of comparing them; return whether it did."""
        if self._encoder is not None and self._encoder.has_text:
            return False
        if not self._wordnet[0]:
            self.notes.append("--glosses has no effect: no concept of this hierarchy has a WordNet id")
            return True
        unknown = "the model does not record its encoder"
        why = f"encoder {quote(self._encoder.name)} has no text tower" if self._encoder else unknown
        self.notes.append(f"the definitions are only shown with the steps and not compared with them: {why}")
        self.define()
        return True

    def text_encoder(self, template: str) -> Encoder:
        """The encoder, checked to have a text tower before anything is paid for."""
        if self._encoder is None:
            raise HCEPError(
                f"{str(self.folder or 'the model')!r} does not record its encoder, so phrases cannot be compared; pass "
                "--encoder, give --vocabulary a file of embedded phrases, or labelled images"
            )
        pools.embed_phrases(self._encoder, (), template=template)
        return self._encoder

    def pool(
        self, phrases: Sequence[str | Path], glosses: bool, describe: int, chat: ChatModel | None
    ) -> tuple[str, ...]:
        """All candidates, without duplicates."""
        parts = [pools.read_phrases(given) if isinstance(given, Path) else (given,) for given in phrases]
        if glosses:
            parts.append(pools.gloss_phrases(self._wordnet[0].values()))
        if describe and chat is not None:
            options = {**self._asking, "edges": self.edges, "aliases": self._wordnet[1]}
            described, failures = describe_atoms(self.hierarchy, chat, n_phrases=describe, **options)
            parts += described.values()
            self.failures |= failures
        pool = pools.merge_pools(*parts)
        if not pool:
            reason = next(iter(self.failures.values()), "--glosses needs a hierarchy with WordNet ids")
            raise HCEPError(f"there are no candidate phrases to compare with: {reason}")
        return pool

    def exemplars(self, images: EmbeddingStore | Embeddings, top_k: int) -> AtomNames:
        """The images that lie furthest along each atom, and a few that lie furthest against it; a store is streamed."""
        known = images
        if isinstance(known, EmbeddingStore):
            known = Embeddings(known, known.labels, encoder=known.encoder, source=str(known.folder))
        refuse_other_encoder(self._record, known.encoder, known.source)
        whole = [(known.X, known.y)]  # raises if an image has no label
        batches = images.batches() if isinstance(images, EmbeddingStore) else whole
        return exemplars(self.dictionary, batches, ids=known.image_ids, top_k=top_k, contrast=N_CONTRAST)

    def summarize(self, chat: ChatModel) -> None:
        """Add the language model's summaries of the phrases."""
        if not any(atom.phrases for atom in self.chosen):
            raise HCEPError(
                "the atoms have no phrases to summarise: give candidates (--vocabulary, --describe), "
                "which need an encoder with a text tower"
            )
        names = replace(self.names, atoms=tuple(self.chosen))
        names, failures = summarize_atoms(names, self.hierarchy, chat, aliases=self._wordnet[1], **self._asking)
        self.add(names)
        self.failures |= failures


def interpretation_table(
    atoms: Iterable[AtomName], hierarchy: Hierarchy, format: TableFormat = "text", *, top_k: int = 10
) -> str:
    """Format names of atoms as a table, with every text escaped for the format.

    The concepts of an atom without phrases are its images; of an atom with both, "text" lists the images as well.

    >>> from hcep.models.atom_names import Phrase
    >>> h = Hierarchy.from_edges([("bear", "polar bear"), ("bear", "panda")])
    >>> atom = AtomName("bear", "polar bear", (Phrase("matte white texture", 0.31),), summary="thick white winter fur")
    >>> print(interpretation_table([atom], h, "markdown"))
    | Parent → Child | Top concepts | Text interpretation |
    |---|---|---|
    | bear → polar bear | matte white texture | thick white winter fur |

    Parameters
    ----------
    atoms : for instance an `AtomNames`
    hierarchy : for display names
    format : "text", "markdown" or "latex" (with the packages booktabs and enumitem)
    top_k : concepts, and images, per row
    """
    if format not in _FORMATS:
        raise HCEPError(
            f"format must be one of {quoted(_FORMATS)}, got {quote(format)}.{near_matches(format, _FORMATS)}"
        )
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
    lines = [atom.meaning or "(no words)", *(title + items for title, items in lists.items() if items)]
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
