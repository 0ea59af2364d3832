"""Commands and groups of commands whose help fits on a screen, with examples."""

import re
import shlex
from collections.abc import Iterable
from copy import copy
from pathlib import Path
from typing import Any

import rich.markup
import typer
from typer.core import TyperCommand, TyperGroup

from hcep.cli.console import Console, escape

#: The panel of options that only `--help-all` shows.
MORE = "More options"
EXAMPLES = Path(__file__).with_name("examples.txt")
#: Examples on the user's own files that `--help` shows; `--help-all` shows all of them.
N_EXAMPLES = 3
#: Fewer rarely used options than these are shown at once.
N_HIDDEN = 3
#: The options of the main commands that `--help` shows, in this order, so that it fits on a screen.
MAIN = {
    "explain": ("html", "where", "why_not", "force", "forbid", "sure", "tree", "json"),
    "fit": ("output", "hierarchy", "encoder", "split", "overwrite"),
    "evaluate": ("split", "compare", "by_class", "output"),
    "predict": ("output", "decode", "sure", "only", "split"),
    "rollup": ("hierarchy", "sure", "labels", "output"),
    "serve": ("store", "host", "port"),
}


def command_path(context: Any) -> str:
    """The names of the groups and of the command, such as "hierarchy show"."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return " ".join(names)


class _PlainTypes:
    """Help that does not show the types of flags."""

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)  # type: ignore[misc]
        for one in params:
            one.metavar = one.metavar or ""  # newer versions of typer show the type of a flag, `<bool>`
        return params


class Command(_PlainTypes, TyperCommand):
    """A command whose `--help` shows the common options and `--help-all` every option and the whole description."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["hcep.everything"] = "--help-all" in args
        return super().parse_args(ctx, ["--help"] if "--help-all" in args else args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        everything = ctx.meta.get("hcep.everything", False)
        shown, path = copy(self), f"hcep {command_path(ctx)}"
        common = [p for p in self.params if getattr(p, "rich_help_panel", None) != MORE]
        main = MAIN.get(command_path(ctx))
        if main is not None:
            named = {p.opts[0].removeprefix("--").replace("-", "_"): _in_main_panel(p) for p in self.params}
            arguments = [p for p in common if p.param_type_name == "argument"]
            common = arguments + [named[name] for name in main]
        if not everything and len(self.params) - len(common) >= N_HIDDEN:
            shown.params = common
        n_more = len(self.params) - len(shown.params)
        shown.params = [_without_type(p) if p.param_type_name == "argument" else p for p in shown.params]
        # Paragraphs, without the line breaks of the source; brackets in them are no markup.
        paragraphs = (self.help or "").split("\n\n")[: None if everything or main is None else 1]
        shown.help = rich.markup.escape("\n\n".join(" ".join(text.split("\n")) for text in paragraphs))
        shown.add_help_option = everything
        TyperCommand.format_help(shown, ctx, formatter)
        # Not as typer's epilog, whose line breaks depend on typer's version.
        Console(highlight=False, soft_wrap=True).print(epilog(path, n_more, None if everything else N_EXAMPLES))


def _in_main_panel(option: Any) -> Any:
    """An option that is shown among the common ones, even if it is rarely used in other commands."""
    option = copy(option)
    option.rich_help_panel = None
    return option


def _without_type(argument: Any) -> Any:
    """An argument whose help does not show its Python type, such as `<list[str]>`."""
    argument = copy(argument)
    argument.display_type_rich = lambda ctx: None
    return argument


class Group(_PlainTypes, TyperGroup):
    """A group of commands."""


def group(text: str, **settings: Any) -> typer.Typer:
    """A group of commands."""
    plain: dict[str, Any] = {"rich_markup_mode": "rich", "pretty_exceptions_enable": False, "cls": Group}
    return typer.Typer(help=text, **{"no_args_is_help": True, **plain, **settings})


def epilog(command: str, n_more: int = 0, n_examples: int | None = None) -> str:
    """The text below a command's options: how to see the rest of them, and its examples.

    Parameters
    ----------
    command : the whole command, such as "hcep hierarchy show"
    n_more : options that are not shown
    n_examples : show at most so many examples on the user's own files; None for all
    """
    lines = [line for line in EXAMPLES.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    first = next((line for line in lines if f"{line.split(' && ')[-1]} ".startswith(f"{command} ")), "")
    after = lines[lines.index(first) + 1 :] if first else []
    more = after[: next((i for i, line in enumerate(after) if not line.startswith(" ")), None)][:n_examples]
    typed = [*_before(first, [line for line in lines if not line.startswith(" ")]), first]
    rest = [f" [dim]{n_more} more options: {command} --help-all[/]"] if n_more else []
    parts = [*rest, *(_block("Example", typed) if first else []), *_block("On your own files", more)]
    return "\n".join(parts)


def _block(title: str, lines: Iterable[str]) -> list[str]:
    shown = [f"   {escape(line.strip())}" for line in lines]
    return [f" [bold]{title}[/]", *shown] if shown else []


def _before(line: str, lines: list[str]) -> list[str]:
    """The lines that make the files a line reads, and the files those read."""
    words = {word.partition("/")[0] for word in shlex.split(line)}
    needed: list[str] = []
    for earlier in lines[: lines.index(line)] if line else []:
        made = {place.partition("/")[0] for place in re.findall(r" -[od] (\S+)", earlier)}
        if made & words:
            needed += [*_before(earlier, lines), earlier]
    return list(dict.fromkeys(needed))
