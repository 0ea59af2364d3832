"""The `hcep` command: one file a command, each of which parses, calls and renders."""

from hcep.cli.app import main

__all__ = ["main"]
