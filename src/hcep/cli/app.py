"""The command's root: every subcommand, options that belong to none of them, and errors as one line."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from hcep import __version__
from hcep._escape import markup as escape
from hcep._files import remove_unfinished
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
from hcep.cli.examples import add_examples
from hcep.cli.options import option, with_ray_address
from hcep.errors import HCEPError, MissingExtraError

app = typer.Typer(
    name="hcep",
    help="Image classification explained by rooted paths of concepts (animal → mammal → cat).",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "data": data.data,
    "encode": encode.encode,
    "fit": fit.fit,
    "explain": explain.explain,
    "correct": correct.correct,
    "open": open_head.open_head,
    "interpret": interpret.interpret,
    "predict": predict.predict,
    "evaluate": evaluate.evaluate,
    "audit": audit.audit,
    "serve": serve.serve,
    "reproduce": reproduce.reproduce,
    "info": info.info,
    "encoders": info.encoders,
}
for name, command in COMMANDS.items():
    app.command(name=name)(command)
GROUPS = {"model": model.app, "hierarchy": hierarchy.app, "induce": induction.app, "store": store.app}
for name, group in GROUPS.items():
    app.add_typer(group, name=name)
add_examples(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"hcep {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, option("Show the version and exit.", "--version", callback=_show_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, option("Show where in the program an error arose; anywhere in the command.", "--debug")
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


#: Seconds to end by itself when interrupted, with what was done so far kept; then the process ends as it is: outputs
#: are written whole or not at all, so the old one stays.
GRACE = 1.5


def answer_interrupts() -> None:
    """From now on, say that the command is stopping when it is asked to, and see that it does.

    Compiled code keeps Python from noticing a signal until it returns, so a thread of its own waits for it.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()


def _watch(reader: int) -> None:
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nstopping ...\n")
    time.sleep(GRACE)
    remove_unfinished()
    os._exit(130)
