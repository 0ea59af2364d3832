"""Newick, the trees of biology, (cat,dog)animal; alone or in NEXUS, with comments, lengths and support passed over."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from hcep.errors import quoted
from hcep.hierarchy.formats.draft import Draft, Repeated
from hcep.hierarchy.formats.source import Source, counted
from hcep.hierarchy.formats.writing import labels
from hcep.hierarchy.graph import Hierarchy

TOKEN = re.compile(r"(?P<space>\s+)|(?P<quoted>'(?:[^']|'')*')|(?P<mark>[(),:;])|(?P<bare>[^\s()',:;]+)")
QUOTED_OR_OPEN = re.compile(r"'(?:[^']|'')*'|\[")
BRACKET = re.compile(r"[\[\]]")
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
NUMERIC = re.compile(NUMBER)
SUPPORT = re.compile(rf"[#$]?{NUMBER}(?:/{NUMBER})*%?")  # also the marks of PAML
BARE = re.compile(r"[A-Za-z0-9_.-]+")
TREE = re.compile(r"\s*u?tree\s*\*?\s*('(?:[^']|'')*'|[^=\s]+)\s*=", re.IGNORECASE)

Token = tuple[str, str, int]


class _Node(NamedTuple):
    label: str
    children: list[_Node]
    line: int


def read(source: Source, *, repeated: Repeated = "raise", tree: str | None = None) -> Hierarchy:
    """Read a tree; `repeated` says what a label in several places means (see `Draft`).

    An inner node without a label is called ``inner 1``, ``inner 2``, ...; a bare number there is a support value and
    counts as none. Blanks in labels need no quotes. Underscores stay as they are.

    Parameters
    ----------
    repeated : {"raise", "merge", "qualify"}
    tree : the one to read of several in a file, by its name or its number from 1; trees that are all the same need none
    """
    text = _without_comments(source)
    is_nexus = text.lstrip()[:6].upper() == "#NEXUS"
    trees: dict[str, _Node] = {}
    for name, found in _nexus_trees(source, text) if is_nexus else _newick_trees(source, text):
        trees[name if name not in trees else f"{name} ({len(trees) + 1})"] = found
    name = _chosen(source, trees, tree)
    source.understood = f"NEXUS tree {name!r}" if is_nexus else "Newick tree"
    return _hierarchy(source, trees[name], repeated)


def _hierarchy(source: Source, tree: _Node, repeated: Repeated) -> Hierarchy:
    taken = {node.label for node in _nodes(tree)}
    draft = Draft(source, repeated)
    n_inner = n_unnamed = 0
    below: list[tuple[_Node, int | None]] = [(tree, None)]
    while below:
        node, parent = below.pop()
        label = node.label
        if not label and node.children:
            n_unnamed += 1
            n_inner += 1
            while (label := f"inner {n_inner}") in taken:
                n_inner += 1
        here = draft.add(label, parent, line=node.line)
        below += [(child, here) for child in reversed(node.children)]
    if n_unnamed:
        source.notes.append(f"named here: {counted(n_unnamed, 'inner node')} without a label, 'inner 1' and so on")
    return draft.hierarchy()


def _nodes(tree: _Node) -> Iterator[_Node]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.children


def _chosen(source: Source, trees: dict[str, _Node], wanted: str | None) -> str:
    names = list(trees)
    if wanted is not None:
        if wanted in trees:
            return wanted
        if wanted.isdecimal() and 0 < int(wanted) <= len(names):
            return names[int(wanted) - 1]
        raise source.fail(f"has no tree {wanted!r}; there are {quoted(names, 9)}, or numbers from 1 to {len(names)}")
    if len({_shape(tree) for tree in trees.values()}) > 1:
        lines = ", ".join(f"{tree.line:,}" for tree in list(trees.values())[:3])
        raise source.fail(
            f"holds {len(names):,} trees that differ (they end in lines {lines}{', ...' if len(names) > 3 else ''}): "
            f"{quoted(names, 5)}; choose with tree= (-O tree=1 on the command line)"
        )
    if len(names) > 1:
        source.notes.append(f"passed over: {counted(len(names) - 1, 'tree')} with the same branches as the first")
    return names[0]


def _shape(tree: _Node) -> int:
    """A number that trees share which have the same labels in the same branches, whatever their order."""
    shapes: dict[int, int] = {}
    for node in reversed(list(_nodes(tree))):
        below = frozenset(Counter(shapes[id(child)] for child in node.children).items())
        shapes[id(node)] = hash((node.label, below))
    return shapes[id(tree)]


def write(hierarchy: Hierarchy, format: str) -> str:
    """Write the tree of first parents."""
    tree = hierarchy.as_tree()
    label = {synset: _quoted(text) for synset, text in labels(tree).items()}
    parts: list[str] = []
    waiting: list[tuple[str, bool, bool]] = [(tree.root, True, False)]  # synset, first of its parent, its children done
    while waiting:
        synset, first, done = waiting.pop()
        children = tree.children(synset)
        parts += [] if done or first else [","]
        if done or not children:
            parts.append((")" if done else "") + label[synset])
            continue
        parts.append("(")
        waiting.append((synset, first, True))
        waiting += [(child, child == children[0], False) for child in reversed(children)]
    return "".join(parts) + ";\n"


def _quoted(label: str) -> str:
    bare = BARE.fullmatch(label) and not NUMERIC.fullmatch(label)
    return label if bare else "'" + label.replace("'", "''") + "'"


def _without_comments(source: Source) -> str:
    """The text with its [comments] blanked out, its lines kept; a bracket in quotes is none."""
    text = source.text()
    parts: list[str] = []
    at = 0
    while opening := QUOTED_OR_OPEN.search(text, at):
        parts.append(text[at : opening.end()])
        at = opening.end()
        if opening[0] == "[":
            depth = 1
            while depth:
                bracket = BRACKET.search(text, at)  # an apostrophe in a comment quotes nothing
                if bracket is None:
                    raise source.fail("a [comment] is not closed", text.count("\n", 0, opening.start()) + 1)
                depth += 1 if bracket[0] == "[" else -1
                at = bracket.end()
            parts[-1] = parts[-1][:-1] + " " + "\n" * text.count("\n", opening.start(), at)
    return "".join([*parts, text[at:]])


def _newick_trees(source: Source, text: str) -> Iterator[tuple[str, _Node]]:
    reading = _Reading(source)
    for kind, token, line in _tokens(source, text, 1):
        reading.take(kind, token, line)
    return ((f"tree {i + 1}", tree) for i, tree in enumerate(reading.finished()))


def _nexus_trees(source: Source, text: str) -> Iterator[tuple[str, _Node]]:
    """The trees of a NEXUS file, with their tips named as its translation says."""
    translation: dict[str, str] = {}
    reading = _Reading(source)
    names: list[str] = []
    inside, line = False, 1
    for command in re.findall(r"(?:[^;']|'(?:[^']|'')*')*;|.+\Z", text, re.DOTALL):
        words = re.sub(r"^\s*#nexus", "", command, flags=re.IGNORECASE).strip(" \t\r\n;").split(None, 1)
        keyword = words[0].casefold() if words else ""
        found = TREE.match(command)
        if keyword == "begin":
            inside = " ".join(words[1:]).strip().casefold() == "trees"
        elif inside and keyword == "translate" and words[1:]:
            pairs = re.findall(r"('(?:[^']|'')*'|[^\s,']+)\s+('(?:[^']|'')*'|[^,']+)", words[1])
            translation = {_label(key): _label(value.strip()) for key, value in pairs}
        elif inside and found:
            names.append(_label(found[1]))
            for kind, token, at in _tokens(source, command[found.end() :], line + command.count("\n", 0, found.end())):
                reading.take(kind, token, at)
        line += command.count("\n")
    if not names:
        raise source.fail("is NEXUS without a tree; expected 'begin trees; tree NAME = (cat,dog)animal; end;'")
    return zip(names, (_translated(tree, translation) for tree in reading.finished()), strict=True)


def _translated(tree: _Node, translation: dict[str, str]) -> _Node:
    built: dict[int, _Node] = {}
    for node in reversed(list(_nodes(tree))):
        label = node.label if node.children else translation.get(node.label, node.label)
        built[id(node)] = _Node(label, [built[id(child)] for child in node.children], node.line)
    return built[id(tree)]


def _label(token: str) -> str:
    return token[1:-1].replace("''", "'") if token.startswith("'") else token


class _Reading:
    """Trees put together token by token, without recursion."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.trees: list[_Node] = []
        self.n_lengths = self.n_support = self.n_blanks = 0
        self.open: list[tuple[list[_Node], int]] = []  # the children read so far of each open node, and its line
        self._clear()

    def _clear(self) -> None:
        self.children: list[_Node] | None = None  # of the node that is being read
        self.label: str | None = None
        self.kind = ""
        self.line = 1
        self.after_colon = False

    def take(self, kind: str, token: str, line: int) -> None:
        if kind != "mark":
            self._word(kind, token, line)
        elif token == "(":
            if not self.open and self.children is None and re.fullmatch(r"[\d\s]+", self.label or ""):
                self.n_blanks -= " " in str(self.label)
                self._clear()  # how many there are, as some programs write in front
            if self.children is not None or self.label is not None:
                raise self.source.fail("expected ',' or ')' before '('", line)
            self.open.append(([], line))
        elif token == ":":
            self.after_colon = True
        else:
            self._close(token, line)

    def _word(self, kind: str, token: str, line: int) -> None:
        if self.after_colon:
            if not NUMERIC.fullmatch(token) and token.casefold() not in ("nan", "inf", "-"):
                raise self.source.fail(f"expected a branch length after ':'; got {token!r}", line)
            self.after_colon = False
            self.n_lengths += 1
        elif self.label is not None and kind == self.kind == "bare":
            self.n_blanks += " " not in self.label
            self.label += f" {token}"
        elif self.label is not None:
            raise self.source.fail(f"expected ',' or ')' before {token!r}; put the whole label in 'quotes'", line)
        else:
            self.label, self.line, self.kind = _label(token), line, kind

    def _close(self, mark: str, line: int) -> None:
        label = self.label or ""
        if self.children is not None and self.kind == "bare" and SUPPORT.fullmatch(label):
            label = ""
            self.n_support += 1
        node = _Node(label, self.children or [], self.line if label else line)
        if not node.label and not node.children:
            raise self.source.fail(f"expected a label before {mark!r}", line)
        self._clear()
        if mark == ";":
            if self.open:
                raise self.source.fail(f"'(' of line {self.open[-1][1]:,} is not closed before ';'", line)
            self.trees.append(node)
            return
        if not self.open:
            raise self.source.fail(f"{mark!r} without a '(' before it", line)
        self.open[-1][0].append(node)
        if mark == ")":
            self.children = self.open.pop()[0]

    def finished(self) -> list[_Node]:
        if not self.trees or self.open or self.label is not None or self.children is not None:
            left = f"{len(self.open)} '(' not closed" if self.open else "no ';'"
            raise self.source.fail(f"ends with {left}; expected a tree such as (cat,dog)animal;")
        told = {
            f"passed over: {counted(self.n_lengths, 'branch length')}": self.n_lengths,
            f"passed over: {counted(self.n_support, 'support value')} of inner nodes": self.n_support,
            f"joined: {counted(self.n_blanks, 'label')} with blanks and no quotes": self.n_blanks,
        }
        self.source.notes += [note for note, n in told.items() if n]
        return self.trees


def _tokens(source: Source, text: str, line: int) -> Iterator[Token]:
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            what = "a quote that is not closed" if text[at] == "'" else repr(text[at])
            raise source.fail(f"expected a label, '(', ')', ',' or ';'; got {what}", line)
        if match.lastgroup != "space":
            yield str(match.lastgroup), match[0], line
        line += match[0].count("\n")
        at = match.end()
