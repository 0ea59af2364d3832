"""`hcep hierarchy`: show, convert, check and mend hierarchies."""

from hcep.cli.hierarchy.app import app

__all__ = ["app"]
