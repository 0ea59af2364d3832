"""`hcep induce`: hierarchies for classes that have none."""

from hcep.cli.induction.app import app

__all__ = ["app"]
