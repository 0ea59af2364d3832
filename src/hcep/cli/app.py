"""The command's root: every subcommand, options that belong to none of them, and errors as one line."""

import os
import re
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from hcep import __version__
from hcep._checks import escape_markup as escape
from hcep._files import remove_unfinished
from hcep.cli.console import Console, say
from hcep.cli.options import group, option, with_ray_address
from hcep.errors import HCEPError, MissingExtraError

#: By module and function, in the order of `--help`; then groups, by module.
COMMANDS = """
demo.demo encode.data encode.encode fit.fit explain.explain explain.correct model.open interpret.interpret
explain.predict evaluate.evaluate audit.audit serve.serve info.info info.encoders
"""
GROUPS = {"model": "model", "hierarchy": "hierarchy_edits", "induce": "induce", "store": "encode"}
app = group("Image classification explained by rooted paths of concepts (animal → mammal → cat).", name="hcep")
for place in COMMANDS.split():
    module, name = place.split(".")
    app.command(name=name)(getattr(import_module(f"hcep.cli.{module}"), name))
for name, module in GROUPS.items():
    app.add_typer(import_module(f"hcep.cli.{module}").app, name=name)

#: Commands of earlier versions, and what to use instead.
MOVED = {"reproduce": "`python -m experiments`, in a clone of the repository"}


def _moved(name: str, new: str) -> Callable[[], None]:
    def moved() -> None:
        raise HCEPError(f"`hcep {name}` is now {new}")

    return moved


for name, new in MOVED.items():
    loose = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(name=name, hidden=True, context_settings=loose)(_moved(name, new))


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"hcep {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, option("Show the version.", "--version", callback=_show_version, is_eager=True)] = False,
    debug: Annotated[bool, option("Show where in the program an error arose.", "--debug")] = False,
) -> None:
    """Image classification explained by rooted paths of concepts (animal → mammal → cat)."""


def add_examples(app: typer.Typer, above: str = "hcep") -> None:
    """Give every command of the app, and of those below it, its examples from examples.txt below `--help`."""
    lines = [line for line in Path(__file__).with_name("examples.txt").read_text("utf-8").splitlines() if line]
    for command in app.registered_commands:
        assert command.callback is not None
        own = f"{above} {command.name or command.callback.__name__.replace('_', '-')}"
        command.epilog = _epilog(own, [line for line in lines if not line.startswith("#")])
    for below in app.registered_groups:
        assert below.typer_instance is not None
        add_examples(below.typer_instance, f"{above} {below.name}")


def _epilog(command: str, lines: list[str]) -> str:
    """What runs as typed, after what makes the files that it reads; then more of it, on other files."""
    first = next((line for line in lines if f"{line.split(' && ')[-1]} ".startswith(f"{command} ")), "")
    after = lines[lines.index(first) + 1 :] if first else []
    more = after[: next((i for i, line in enumerate(after) if not line.startswith(" ")), None)]
    typed = [*_before(first, [line for line in lines if not line.startswith(" ")]), first]
    parts = ["[bold]Example[/], as typed", *map(escape, typed)] if first else []
    return "\n\n".join(parts + (["[bold]More[/], on your own files", *map(escape, more)] if more else []))


def _before(line: str, lines: list[str]) -> list[str]:
    """The lines that make what a line reads, and what they read."""
    words = {word.partition("/")[0] for word in shlex.split(line)}
    found: list[str] = []
    for earlier in lines[: lines.index(line)] if line else []:
        made = {place.partition("/")[0] for place in re.findall(r" -[od] (\S+)", earlier)}
        if made & words:
            found += [*_before(earlier, lines), earlier]
    return list(dict.fromkeys(found))


add_examples(app)


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
