"""The root command: every subcommand, the options of the root, and errors as one line."""

import os
import shlex
import signal
import sys
import threading
import time
import traceback
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from hcep import __version__
from hcep._files import not_writable, remove_unfinished
from hcep.cli.console import Console, escape, say
from hcep.cli.help import Command, group
from hcep.cli.options import option, with_ray_address
from hcep.embeddings.encoders.hub import ALLOW_DOWNLOAD
from hcep.errors import HCEPError, MissingExtraError

ABOUT = "Classify images and explain every answer by a rooted path of concepts (animal → mammal → cat)."
#: Commands, each the function of its name in the module of its name, in the panels and the order of `hcep --help`.
COMMANDS = {
    "Explain photos": ("demo", "explain", "correct", "serve"),
    "Make a model": ("data", "encode", "fit", "open"),
    "Use and check a model": ("predict", "rollup", "evaluate", "audit", "interpret", "export", "info"),
    "Hierarchies": ("induce",),
}
#: Groups of commands: their help, their panel, and their commands by module.
GROUPS: dict[str, tuple[str, str, dict[str, tuple[str, ...]]]] = {
    "model": (
        "Change a fitted model (learn, add, edit, calibrate, undo), or push and pull models.",
        "Use and check a model",
        {"model": ("learn", "add", "edit", "calibrate", "undo", "push", "pull")},
    ),
    "hierarchy": (
        "Show, convert, check, edit and compare hierarchies.",
        "Hierarchies",
        {"hierarchy": ("show", "convert"), "hierarchy_edits": ("lint", "edit", "compare")},
    ),
}
#: What to do next, for `hcep` without a command.
NEXT = """\
hcep demo                                          see it on nine photos
hcep explain photo.jpg --where --html report.html  explain a photo of yours
hcep fit photos/ --hierarchy tree.csv -o model/    learn from photos/CLASS/*.jpg
hcep explain model/ photo.jpg                      explain with that model
hcep --help                                        list all commands"""

app = group(ABOUT, name="hcep", no_args_is_help=False, invoke_without_command=True)
for panel, names in COMMANDS.items():
    for name in names:
        app.command(name, cls=Command, rich_help_panel=panel)(getattr(import_module(f"hcep.cli.{name}"), name))
for name, (text, panel, modules) in GROUPS.items():
    below = group(text)
    app.add_typer(below, name=name, rich_help_panel=panel)
    for module, names in modules.items():
        for command in names:
            below.command(command, cls=Command)(getattr(import_module(f"hcep.cli.{module}"), command))


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"hcep {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[bool, option("Show the version.", "--version", callback=_show_version, is_eager=True)] = False,
    debug: Annotated[bool, option("Show the traceback if there is an error.", "--debug")] = False,
    allow_download: Annotated[bool, option("Download the encoder that a model names.", "--allow-download")] = False,
) -> None:
    """Classify images and explain every answer by a rooted path of concepts (animal → mammal → cat)."""
    if context.invoked_subcommand is None:
        say(NEXT)


def main() -> None:
    """Run the command line.

    An error in the input is one line on standard error and exit code 2, or 1 if an output cannot be written. Any other
    error is a bug: one line says so and how to report it, and the exit code is 70. ``--debug`` shows the traceback.
    """
    debug = "--debug" in sys.argv[1:]
    if "--allow-download" in sys.argv[1:]:
        os.environ[ALLOW_DOWNLOAD] = "1"  # also for other threads and processes
    sys.argv[1:] = [argument for argument in sys.argv[1:] if argument not in ("--debug", "--allow-download")]
    answer_interrupts()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without arrows gets question marks, not a traceback
    try:
        app(with_ray_address(sys.argv[1:]))
    except Exception as error:
        if debug:
            raise
        code, message = _describe(error)
        Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
        sys.exit(code)


def _describe(error: Exception) -> tuple[int, str]:
    """The exit code and the one-line message of an error."""
    if isinstance(error, HCEPError | MissingExtraError | OSError):
        return 1 if not_writable(error) else 2, " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MemoryError):
        return 2, "there is not enough memory; pass fewer images at a time"
    where = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({Path(where.filename).name}:{where.lineno})"
    command = shlex.join(["hcep", "--debug", *sys.argv[1:]])
    return 70, f"this is a bug in hcep {__version__}: {what}; please report it with the output of: {command}"


#: Seconds that an interrupted command may take to end by itself and keep its finished work. After that the process
#: exits at once: outputs are written whole or not at all, so the old output stays.
GRACE = 1.5


def answer_interrupts() -> None:
    """Make Ctrl-C print "stopping ..." at once, and end the process if the command does not.

    Compiled code keeps Python from noticing a signal until it returns, so a separate thread waits for it. Whichever of
    the two notices first prints the line: Python may be gone before the thread has its turn.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    said = threading.Lock()  # taken once, by the one that prints
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job ignores interrupts
        signal.signal(signal.SIGINT, lambda *_: _interrupt(said))
    threading.Thread(target=_watch, args=(reader, said), daemon=True).start()


def _say_stopping(said: threading.Lock) -> None:
    if said.acquire(blocking=False):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"\nstopping ...\n")


def _interrupt(said: threading.Lock) -> None:
    _say_stopping(said)
    raise KeyboardInterrupt


def _watch(reader: int, said: threading.Lock) -> None:
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass
    _say_stopping(said)
    time.sleep(GRACE)
    remove_unfinished()
    os._exit(130)
