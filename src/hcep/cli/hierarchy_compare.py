"""`hcep hierarchy compare`: what changed between two hierarchies."""

from __future__ import annotations

from typing import Annotated

from hcep import taxonomy
from hcep.cli import options as opt
from hcep.cli.hierarchy import read
from hcep.cli.hierarchy_edits import report
from hcep.cli.options import argument


def compare(
    before: Annotated[str, argument("A hierarchy: a file, `imagenet` or a model folder.", metavar="BEFORE")],
    after: Annotated[str, argument("The hierarchy to compare it with.", metavar="AFTER")],
    *,
    as_json: opt.Json = False,
    options: opt.ReaderOptions = None,
) -> None:
    """Show what changed between two hierarchies: - and + are edges, ~ names, = merged concepts; ids are in brackets."""
    old, new = read(before, options), read(after, options)
    report([], old, taxonomy.diff(old, new), {}, True, None, as_json)
