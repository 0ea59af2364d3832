"""Newick, the trees of biology: (cat,dog)animal; with quoted labels, [comments] and branch lengths passed over."""

from __future__ import annotations

import re
from typing import NamedTuple

from hcep.hierarchy.formats.draft import Draft, Repeated
from hcep.hierarchy.formats.source import Source, counted
from hcep.hierarchy.formats.writing import labels
from hcep.hierarchy.graph import Hierarchy

TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<quoted>'(?:[^']|'')*')|(?P<mark>[(),:;])|(?P<bare>[^\s()\[\]',:;]+)|(?P<open>\[)"
)
NUMERIC = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
BARE = re.compile(r"[A-Za-z0-9_.-]+")


class _Node(NamedTuple):
    label: str
    children: list[_Node]
    line: int


def read(source: Source, *, repeated: Repeated = "raise") -> Hierarchy:
    """Read one tree; `repeated` says what a label in several places means (see `Draft`).

    An inner node without a label is called ``inner 1``, ``inner 2``, ...; a bare number there is a support value and
    counts as none. Underscores stay as they are.
    """
    tree = _parsed(source)
    taken = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        taken.add(node.label)
        waiting += node.children
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


def _parsed(source: Source) -> _Node:
    """The nodes of the one tree, built without recursion."""
    reading = _Reading(source)
    for kind, token, line in _tokens(source):
        reading.take(kind, token, line)
    return reading.finished()


class _Reading:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.open: list[tuple[list[_Node], int]] = []  # the children read so far of each open node, and its line
        self.children: list[_Node] | None = None  # of the node that is being read
        self.label: str | None = None
        self.line = 1
        self.after_colon = self.done = False
        self.tree: _Node | None = None
        self.n_lengths = self.n_support = 0

    def take(self, kind: str, token: str, line: int) -> None:
        if self.done:
            raise self.source.fail(f"expected one tree; got {token!r} after its ';'", line)
        if kind != "mark":
            self._word(kind, token, line)
        elif token == "(":
            if self.children is not None or self.label is not None:
                raise self.source.fail("expected ',' or ')' before '('", line)
            self.open.append(([], line))
        elif token == ":":
            self.after_colon = True
        else:
            self._close(token, line)

    def _word(self, kind: str, token: str, line: int) -> None:
        if self.after_colon:
            if not NUMERIC.fullmatch(token):
                raise self.source.fail(f"expected a branch length after ':'; got {token!r}", line)
            self.after_colon = False
            self.n_lengths += 1
        elif self.label is not None:
            raise self.source.fail(f"expected ',' or ')' before {token!r}; put labels with blanks in 'quotes'", line)
        elif kind == "bare" and self.children is not None and NUMERIC.fullmatch(token):
            self.label = ""
            self.n_support += 1
        else:
            self.label, self.line = token[1:-1].replace("''", "'") if kind == "quoted" else token, line

    def _close(self, mark: str, line: int) -> None:
        node = _Node(self.label or "", self.children or [], self.line if self.label else line)
        if not node.label and not node.children:
            raise self.source.fail(f"expected a label before {mark!r}", line)
        self.label, self.children, self.after_colon = None, None, False
        if mark == ";":
            if self.open:
                raise self.source.fail(f"'(' of line {self.open[-1][1]:,} is not closed before ';'", line)
            self.tree, self.done = node, True
            return
        if not self.open:
            raise self.source.fail(f"{mark!r} without a '(' before it", line)
        self.open[-1][0].append(node)
        if mark == ")":
            self.children = self.open.pop()[0]

    def finished(self) -> _Node:
        if self.tree is None:
            left = f"{len(self.open)} '(' not closed" if self.open else "no ';'"
            raise self.source.fail(f"ends with {left}; expected a tree such as (cat,dog)animal;")
        if self.n_lengths:
            self.source.notes.append(f"passed over: {counted(self.n_lengths, 'branch length')}")
        if self.n_support:
            self.source.notes.append(f"passed over: {counted(self.n_support, 'support value')} of inner nodes")
        return self.tree


def _tokens(source: Source) -> list[tuple[str, str, int]]:
    text = source.text()
    found, at, line = [], 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            what = "a quote that is not closed" if text[at] == "'" else repr(text[at])
            raise source.fail(f"expected a label, '(', ')', ',' or ';'; got {what}", line)
        kind, end = str(match.lastgroup), match.end()
        if kind == "open":
            end = _comment_end(source, text, at, line)
        elif kind != "space":
            found.append((kind, match[0], line))
        line += text.count("\n", at, end)
        at = end
    return found


def _comment_end(source: Source, text: str, at: int, line: int) -> int:
    depth = 0
    for match in re.compile(r"[\[\]]").finditer(text, at):
        depth += 1 if match[0] == "[" else -1
        if depth == 0:
            return match.end()
    raise source.fail("a [comment] is not closed", line)
