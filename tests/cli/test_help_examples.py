"""The help of every command ends with an example that runs as typed in an empty folder."""

import re
import shlex
import shutil
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from hcep._checks import is_installed
from hcep.cli.app import app
from hcep.datasets import load_sample
from hcep.errors import MissingExtraError
from tests.models.hub_server import reachable_hub
from tests.taxonomy.llm.chat_server import running_chat
from tests.taxonomy.test_wordnet_database import write_database
from tests.test_docs import unknown_words

ROOT = typer.main.get_command(app)
#: A terminal in which no example is broken into two lines.
WIDE = {"COLUMNS": "250", "TERMINAL_WIDTH": "250"}
#: A language model's server, in the examples; the test has one of its own.
SERVER = "http://127.0.0.1:11434/v1"


def commands(group, above=()):
    for name, command in group.commands.items():
        path = (*above, name)
        yield from commands(command, path) if hasattr(command, "commands") else [path]


def help_lines(path):
    """The examples below a command's help: those to type one after the other, and those on the user's own files."""
    text = CliRunner().invoke(app, [*path, "--help-all"], env=WIDE, terminal_width=250).output
    typed, _, more = text.partition("Example\n")[2].partition("On your own files")
    return [[line.strip() for line in part.splitlines() if line.strip().startswith("hcep ")] for part in (typed, more)]


COMMANDS = list(commands(ROOT))


@pytest.mark.parametrize("path", COMMANDS, ids="-".join)
def test_every_command_shows_an_example_of_its_own_with_options_that_exist(path):
    typed, more = help_lines(path)
    assert typed, f"{' '.join(path)} has no example: add a line to src/hcep/cli/examples.txt"
    assert f"{typed[-1].split(' && ')[-1]} ".startswith(f"hcep {' '.join(path)} ")
    parts = [part for line in (*typed, *more) for part in re.split(r" && | \| jq", line) if part.startswith("hcep")]
    assert [(part, unknown_words(part, ROOT)) for part in parts if unknown_words(part, ROOT)] == []


def answer():
    """What the language model says: all classes of the sample below one concept."""
    tree = load_sample().hierarchy
    return "1. thing\n" + "\n".join(f"1.{i} {tree.name(leaf)}" for i, leaf in enumerate(tree.leaves, 1))


class Typed:
    """Lines typed in an empty folder; folders in which the same lines were typed before are copied."""

    def __init__(self, place, server):
        self.place, self.server, self.known, self.wordnet = place, server, {}, place / "wordnet"
        write_database(self.wordnet)

    def folder(self, lines):
        if not lines:
            return None
        if lines not in self.known:
            self.known[lines] = self.type(lines)
        return self.known[lines]

    def type(self, lines):
        *before, last = lines
        state, folder = self.folder(tuple(before)), tempfile.mkdtemp(dir=self.place)
        if state:
            shutil.copytree(state, folder, dirs_exist_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            for part in last.split(" && "):
                self.run(shlex.split(part.replace(SERVER, self.server))[1:])
        return folder

    def run(self, words):
        if words[0] == "serve":
            pytest.importorskip("nicegui", reason="nicegui is not installed")
            from tests.web.conftest import start

            server = start(Path("serve.log").absolute(), *(word for word in words[1:] if word != "--no-browser"))
            assert server.stop() in (0, -signal.SIGTERM)
            return
        result = CliRunner().invoke(app, words)
        if isinstance(result.exception, MissingExtraError):
            pytest.skip(str(result.exception))
        # An audit ends with 1 where the model fails a check, which is an answer.
        allowed = {0, 1} if words[0] == "audit" and "✗" in result.output else {0}
        assert result.exit_code in allowed, (words, result.output, result.exception)


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    cache = tmp_path_factory.mktemp("hub")
    with ExitStack() as stack:
        chat = stack.enter_context(running_chat())
        if is_installed("huggingface_hub"):
            stack.enter_context(reachable_hub(stack.enter_context(pytest.MonkeyPatch.context()), cache))
        chat.tell(answer())
        yield Typed(tmp_path_factory.mktemp("typed"), chat.url)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the hub's client
@pytest.mark.parametrize("path", COMMANDS, ids="-".join)
def test_examples_work_as_typed(path, typed, monkeypatch):
    monkeypatch.setenv("HCEP_SHARED", "nowhere")
    monkeypatch.setenv("WNSEARCHDIR", str(typed.wordnet))
    monkeypatch.setenv("XDG_CACHE_HOME", str(typed.wordnet))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    typed.folder(tuple(help_lines(path)[0]))
