"""The command's root: every subcommand, options that belong to none of them, and errors as one line."""

from __future__ import annotations

import shlex
import sys
import traceback
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from hcep import __version__
from hcep._escape import markup as escape
from hcep.cli import (
    audit,
    correct,
    data,
    demo,
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
    serve,
    store,
)
from hcep.cli.console import Console, say
from hcep.cli.data_options import with_ray_address
from hcep.cli.examples import add_examples
from hcep.cli.stopping import answer_interrupts
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
app.command(name="serve")(serve.serve)
app.command(name="open")(open_head.open_head)
app.command(name="interpret")(interpret.interpret)
app.command(name="predict")(predict.predict)
app.command(name="evaluate")(evaluate.evaluate)
app.command(name="audit")(audit.audit)
app.command(name="reproduce")(reproduce.reproduce)
app.command(name="info")(info.info)
app.command(name="encoders")(info.encoders)
app.add_typer(model.app, name="model")
app.add_typer(hierarchy.app, name="hierarchy")
app.add_typer(induction.app, name="induce")
app.add_typer(store.app, name="store")
add_examples(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"hcep {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where in the program an error arose; anywhere in the command.")
    ] = False,
) -> None:
    """Image classification explained by rooted paths of concepts (animal → mammal → cat)."""


def main() -> None:
    """Run the command; an error about the input is one line on standard error and exit code 2.

    Anything else is a bug, which one line says as well, with how to report it, and exit code 70; ``--debug`` shows
    the traceback of either.
    """
    debug = "--debug" in sys.argv[1:]
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument != "--debug"]
    answer_interrupts()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without arrows gets question marks, not a traceback
    try:
        app(with_ray_address(sys.argv[1:]))
    except Exception as error:
        if debug:
            raise
        code, told = _told(error)
        Console(stderr=True).print(f"[bold red]error:[/] {escape(told)}", highlight=False, soft_wrap=True)
        sys.exit(code)


def _told(error: Exception) -> tuple[int, str]:
    """Exit code and sentence of an error."""
    if isinstance(error, HCEPError | MissingExtraError | OSError):
        return 2, " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        return 2, "there is not enough memory for this; give fewer images at a time"
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({Path(where.filename).name}:{where.lineno})"
    command = shlex.join(["hcep", "--debug", *sys.argv[1:]])
    return 70, f"this is a bug in hcep {__version__}: {what}; please report it with what this prints: {command}"
