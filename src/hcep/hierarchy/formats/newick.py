"""Newick, the tree format of biology, as in (cat,dog)animal; also inside NEXUS files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import count
from typing import NamedTuple

from hcep.errors import counted, quote, quoted
from hcep.hierarchy.formats.draft import Draft, Repeated
from hcep.hierarchy.formats.source import Source
from hcep.hierarchy.formats.writing import labels
from hcep.hierarchy.graph import Hierarchy

# Possessive quantifiers (``*+``) never go back, so that time grows with the text.
QUOTED = r"'(?:[^']++|'')*+'"
TOKEN = re.compile(rf"(?P<space>\s++)|(?P<quoted>{QUOTED})|(?P<mark>[(),:;])|(?P<bare>[^\s()',:;]++)")
QUOTED_OR_OPEN = re.compile(rf"{QUOTED}|\[")
COMMAND = re.compile(rf"(?:[^;']++|{QUOTED})*+;|.+\Z", re.DOTALL)
ENTRY = re.compile(rf"(?:[^,']++|{QUOTED})++")
KEY = re.compile(rf"\s*+({QUOTED}|[^\s']++)\s++")
BRACKET = re.compile(r"[\[\]]")
NUMBER = r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?"
NUMERIC = re.compile(NUMBER)
SUPPORT = re.compile(rf"[#$]?{NUMBER}(?:/{NUMBER})*%?")  # also PAML's marks
BARE = re.compile(r"[A-Za-z0-9_.-]+")
TREE = re.compile(rf"\s*+u?tree\s*+(?:\*\s*+)?({QUOTED}|[^=\s]++)\s*+=", re.IGNORECASE)


class _Node(NamedTuple):
    label: str
    children: list[_Node]
    line: int
    shape: int  # equal for trees with the same labels in the same branches, in any order


def read(source: Source, *, repeated: Repeated = "raise", tree: str | None = None) -> Hierarchy:
    """Read a tree; comments, branch lengths and support values are skipped.

    An inner node without a label, or with a support value only, is called ``inner 1``, ``inner 2``, ... Labels may
    contain spaces without quotes. Underscores stay as they are.

    Parameters
    ----------
    repeated : what a label in several places means (see `Draft`)
    tree : the tree to read if a file has several that differ, by its name or its number from 1
    """
    text = _without_comments(source)
    is_nexus = text.lstrip()[:6].upper() == "#NEXUS"
    n = Counter[str]()
    plain = () if is_nexus else _parsed(source, text, 1, n, {})
    named = _nexus_trees(source, text, n) if is_nexus else [(f"tree {i + 1}", tree) for i, tree in enumerate(plain)]
    remarks = {
        "lengths": f"skipped: {counted(n['lengths'], 'branch length')}",
        "support": f"skipped: {counted(n['support'], 'support value')} of inner nodes",
        "blanks": f"joined: {counted(n['blanks'], 'label')} with spaces and without quotes",
    }
    source.notes += [note for what, note in remarks.items() if n[what]]
    trees: dict[str, _Node] = {}
    for name, one in named:
        trees[name if name not in trees else f"{name} ({len(trees) + 1})"] = one
    name = _chosen(source, trees, tree)
    source.understood = f"NEXUS tree {quote(name)}" if is_nexus else "Newick tree"
    order: list[tuple[_Node, int | None]] = []  # each with the position of its parent, which comes before it
    waiting: list[tuple[_Node, int | None]] = [(trees[name], None)]
    while waiting:
        order.append(waiting.pop())
        waiting += [(child, len(order) - 1) for child in reversed(order[-1][0].children)]
    taken = {node.label for node, _ in order}
    unnamed = (name for i in count(1) if (name := f"inner {i}") not in taken)
    draft, at = Draft(source, repeated), list[int]()
    for node, parent in order:
        label = node.label or (next(unnamed) if node.children else "")
        at.append(draft.add(label, None if parent is None else at[parent], line=node.line))
    n_unnamed = sum(not node.label for node, _ in order)
    if n_unnamed:
        source.notes.append(f"named 'inner 1' and so on: {counted(n_unnamed, 'inner node')} without a label")
    return draft.hierarchy()


def _chosen(source: Source, trees: dict[str, _Node], wanted: str | None) -> str:
    names = list(trees)
    if wanted is not None:
        if wanted in trees:
            return wanted
        if wanted.isdecimal() and 0 < int(wanted) <= len(names):
            return names[int(wanted) - 1]
        raise source.fail(
            f"has no tree {quote(wanted)}; expected {quoted(names, 9)}, or a number from 1 to {len(names)}"
        )
    if len({tree.shape for tree in trees.values()}) > 1:
        lines = ", ".join(f"{tree.line:,}" for tree in list(trees.values())[:3])
        raise source.fail(
            f"has {len(names):,} trees that differ (they end in lines {lines}{', ...' if len(names) > 3 else ''}): "
            f"{quoted(names, 5)}; choose with tree= (-O tree=1 on the command line)"
        )
    if len(names) > 1:
        source.notes.append(f"skipped: {counted(len(names) - 1, 'tree')} with the same branches as the first")
    return names[0]


def write(hierarchy: Hierarchy, format: str) -> str:
    """Write the tree of first parents."""
    tree = hierarchy.as_tree()
    label = labels(tree)
    for synset, text in label.items():
        if not BARE.fullmatch(text) or NUMERIC.fullmatch(text):
            label[synset] = "'" + text.replace("'", "''") + "'"
    parts: list[str] = []
    # Each concept, whether it is a first child, and whether its children are done.
    waiting: list[tuple[str, bool, bool]] = [(tree.root, True, False)]
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


def _without_comments(source: Source) -> str:
    """The text with its [comments] replaced by spaces and line ends; brackets in quotes are kept."""
    text = source.text()
    parts: list[str] = []
    at = 0
    while opening := QUOTED_OR_OPEN.search(text, at):
        parts.append(text[at : opening.end()])
        at = opening.end()
        if opening[0] == "[":
            depth = 1
            while depth:
                bracket = BRACKET.search(text, at)  # an apostrophe in a comment does not quote
                if bracket is None:
                    raise source.fail("a [comment] is not closed", text.count("\n", 0, opening.start()) + 1)
                depth += 1 if bracket[0] == "[" else -1
                at = bracket.end()
            parts[-1] = parts[-1][:-1] + " " + "\n" * text.count("\n", opening.start(), at)
    return "".join([*parts, text[at:]])


def _nexus_trees(source: Source, text: str, n: Counter[str]) -> list[tuple[str, _Node]]:
    """The trees of a NEXUS file, with the tip names of its translation."""
    translation: dict[str, str] = {}
    trees: list[tuple[str, _Node]] = []
    inside, line = False, 1
    for command in COMMAND.findall(text):
        words = re.sub(r"^\s*#nexus", "", command, flags=re.IGNORECASE).strip(" \t\r\n;").split(None, 1)
        keyword = words[0].casefold() if words else ""
        match = TREE.match(command)
        if keyword == "begin":
            inside = " ".join(words[1:]).strip().casefold() == "trees"
        elif inside and keyword == "translate" and words[1:]:
            pairs = [
                (match[1], entry[match.end() :]) for entry in ENTRY.findall(words[1]) if (match := KEY.match(entry))
            ]
            translation = {_label(key): _label(value.strip()) for key, value in pairs}
        elif inside and match:
            start = line + command.count("\n", 0, match.end())
            parsed = _parsed(source, command[match.end() :], start, n, translation)
            trees += [(_label(match[1]), tree) for tree in parsed]
        line += command.count("\n")
    if not trees:
        raise source.fail("is a NEXUS file without a tree; expected 'begin trees; tree NAME = (cat,dog)animal; end;'")
    return trees


def _label(token: str) -> str:
    return token[1:-1].replace("''", "'") if token.startswith("'") else token


def _parsed(
    source: Source, text: str, first_line: int, n: Counter[str], translation: Mapping[str, str]
) -> Iterator[_Node]:
    """Trees built token by token, without recursion; `n` counts what is skipped."""
    opened: list[tuple[list[_Node], int]] = []  # the children so far of each open node, and its line
    children: list[_Node] | None = None  # of the node that is being read
    label, label_kind, label_line, after_colon, n_trees = "", "", 1, False, 0
    for kind, token, line in _tokens(source, text, first_line):
        if kind != "mark" and after_colon:
            if not NUMERIC.fullmatch(token) and token.casefold() not in ("nan", "inf", "-"):
                raise source.fail(f"expected a branch length after ':'; got {quote(token)}", line)
            after_colon = False
            n["lengths"] += 1
        elif kind != "mark" and kind == label_kind == "bare":
            n["blanks"] += " " not in label
            label += f" {token}"
        elif kind != "mark" and label_kind:
            raise source.fail(f"expected ',' or ')' before {quote(token)}; put the whole label in 'quotes'", line)
        elif kind != "mark":
            label, label_kind, label_line = _label(token), kind, line
        elif token == "(":
            if not opened and children is None and re.fullmatch(r"[\d\s]+", label):
                n["blanks"] -= " " in label
                label, label_kind = "", ""  # the number of taxa, which some programs write first
            if children is not None or label_kind:
                raise source.fail("expected ',' or ')' before '('", line)
            opened.append(([], line))
        elif token == ":":
            after_colon = True
        else:
            if children is not None and label_kind == "bare" and SUPPORT.fullmatch(label):
                label = ""
                n["support"] += 1
            if not label and not children:
                raise source.fail(f"expected a label before {quote(token)}", line)
            own = label if children else translation.get(label, label)
            below = frozenset(Counter(child.shape for child in children or ()).items())
            node = _Node(own, children or [], label_line if label else line, hash((own, below)))
            label, label_kind, children, after_colon = "", "", None, False
            if token == ";" and opened:
                raise source.fail(f"'(' of line {opened[-1][1]:,} is not closed before ';'", line)
            if token == ";":
                n_trees += 1
                yield node
                continue
            if not opened:
                raise source.fail(f"{quote(token)} without a '(' before it", line)
            opened[-1][0].append(node)
            children = opened.pop()[0] if token == ")" else None
    if not n_trees or opened or label_kind or children is not None:
        left = f"{len(opened)} '(' not closed" if opened else "no ';'"
        raise source.fail(f"ends with {left}; expected a tree such as (cat,dog)animal;")


def _tokens(source: Source, text: str, line: int) -> Iterator[tuple[str, str, int]]:
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
