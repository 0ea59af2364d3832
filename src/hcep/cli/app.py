"""The command's root: every subcommand, options that belong to none of them, and errors as one line."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from hcep import __version__
from hcep._escape import markup as escape
from hcep.cli import (
    correct,
    data,
    demo,
    audit,
    encode,
    evaluate,
    explain,
    fit,
    hierarchy,
    induction,
    info,
    interpret,
    model,
    open_head,
    predict,
    reproduce,
)
from hcep.cli.console import Console, say
from hcep.cli.data_options import with_ray_address
from hcep.errors import HCEPError, MissingExtraError

app = typer.Typer(
    name="hcep",
    help="Image classification explained by rooted paths of concepts (animal → mammal → cat).",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command(name="demo")(demo.demo)
app.command(name="data")(data.data)
app.command(name="encode")(encode.encode)
app.command(name="fit")(fit.fit)
app.command(name="explain")(explain.explain)
app.command(name="correct")(correct.correct)
app.command(name="open")(open_head.open_head)
app.command(name="interpret")(interpret.interpret)
app.command(name="predict")(predict.predict)
app.command(name="evaluate")(evaluate.evaluate)
app.command(name="reproduce")(reproduce.reproduce)
app.command(name="info")(info.info)
app.command(name="encoders")(info.encoders)
app.add_typer(model.app, name="model")
app.add_typer(hierarchy.app, name="hierarchy")
app.command(name="audit")(audit.audit)
app.add_typer(induction.app, name="induce")


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"hcep {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Image classification explained by rooted paths of concepts (animal → mammal → cat)."""


def main() -> None:
    """Run the command; an error about the input is one line on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without arrows gets question marks, not a traceback
    try:
        app(with_ray_address(sys.argv[1:]))
    except (HCEPError, MissingExtraError, OSError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)
