"""All commands together: how many there are, options that mean one thing, and help on one screen."""

from collections import defaultdict

import pytest
import typer.main
from typer.testing import CliRunner

from hcep.cli.app import app
from hcep.cli.help import MAIN
from hcep.errors import HCEPError
from tests.test_docs import unknown_words

ROOT = typer.main.get_command(app)


def leaves(group, above=()):
    for name, command in group.commands.items():
        path = (*above, name)
        yield from leaves(command, path) if hasattr(command, "commands") else [(" ".join(path), command)]


COMMANDS = dict(leaves(ROOT))


def options_of(command):
    return [parameter for parameter in command.params if parameter.param_type_name == "option"]


def type_of(parameter):
    """The type of a parameter, in versions of typer with and without click."""
    if hasattr(parameter, "type_descriptor"):
        return str(parameter.type_descriptor.annotation)
    bounds = [getattr(parameter.type, name, None) for name in ("choices", "min", "max")]
    return f"{type(parameter.type).__name__} {bounds}"


def shown(*words):
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"}, terminal_width=100)


def test_there_are_few_commands_with_few_options():
    assert len(COMMANDS) <= 28
    assert {name: len(options_of(command)) for name, command in COMMANDS.items() if len(options_of(command)) > 22} == {}


def test_an_option_is_the_same_in_every_command():
    meanings = defaultdict(lambda: defaultdict(list))
    for name, command in COMMANDS.items():
        for parameter in options_of(command):
            kind = (type_of(parameter), parameter.multiple, parameter.is_flag, parameter.help, parameter.metavar)
            for option in (*parameter.opts, *parameter.secondary_opts):
                meanings[option][*parameter.opts, kind].append(name)
    different = {option: list(kinds.values()) for option, kinds in meanings.items() if len(kinds) > 1}
    assert different == {}


def test_every_option_and_argument_has_a_help_text_that_is_a_sentence():
    bare = [
        (name, parameter.name, parameter.help)
        for name, command in COMMANDS.items()
        for parameter in command.params
        if not (parameter.help or "").endswith(".")
    ]
    assert bare == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_on_a_screen(name):
    result = shown(*name.split(), "--help")
    assert result.exit_code == 0
    longest = 60 if name in ("induce", "interpret", "hierarchy lint", "hierarchy edit") else 42
    longest = 30 if name in (*MAIN, "demo") else longest
    assert result.output.count("\n") <= longest


@pytest.mark.parametrize("name", ["fit", "explain"])
def test_help_all_lists_the_rarely_used_options_as_well(name):
    few, everything = shown(name, "--help").output, shown(name, "--help-all").output
    main = {f"--{option}".replace("_", "-") for option in MAIN[name]}
    rare = {option.opts[0] for option in options_of(COMMANDS[name])} - main
    assert len(rare) >= 5
    assert not any(f"│    {option} " in few or f"│ {option} " in few for option in rare)
    assert all(f"{option} " in everything for option in rare)
    assert f"{len(rare)} more options: hcep {name} --help-all" in few
    assert "More options" in everything
    assert "<bool>" not in everything  # the type of a flag


@pytest.mark.parametrize("name", MAIN)
def test_help_of_a_main_command_shows_its_main_options_in_their_order(name):
    text = shown(name, "--help").output
    places = [text.find(f" --{option.replace('_', '-')} ") for option in MAIN[name]]
    assert -1 not in places
    assert places == sorted(places)


def test_without_a_command_five_lines_say_what_to_do():
    result = shown()
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80
    commands = [line.partition("  ")[0] for line in lines]
    assert [(command, unknown_words(command, ROOT)) for command in commands if unknown_words(command, ROOT)] == []


def test_help_lists_every_command_in_a_group():
    text = shown("--help").output
    panels = ("Explain photos", "Make a model", "Use and check a model", "Hierarchies")
    assert [text.index(panel) for panel in panels] == sorted(text.index(panel) for panel in panels)
    assert "─ Commands ─" not in text
    assert all(f"│ {name} " in text for name in ROOT.commands)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ("serve -P megapixels=500", "--parameter megapixels: expected a number from 0.1 to 89, got 500"),
        ("serve -P photos=many", "--parameter photos: expected a number from 1 to 1,000,000, got 'many'"),
        ("serve -P fotos=3", "there is no parameter 'fotos'. Near matches: 'photos'"),
        ("info --encoders --formats", "give only one of --encoders, --formats, --check and --repair"),
        ("info --check", "--check and --repair need the folder of a store"),
        ("fit --from-text -e x -H flat -o model", "--from-text: a flat hierarchy has no classes"),
        ("fit x.npz --unlabelled y.npz -o model", "--unlabelled has no effect without --from-text or --vocabulary"),
        ("fit x.npz -P head=path -P lr=1 -o model", "epochs, batch_size and lr are parameters of the head adamw"),
        ("fit x.npz -P ankor=1 -o model", "there is no parameter 'ankor'. Near matches: 'anchor'"),
        ("fit x --vectors f --labels y --ray auto -o model", "--vectors, --labels are not supported with --ray"),
        ("predict model x --encoder e --ray auto -o p", "--encoder is not supported with --ray"),
        ("explain photo.jpg --sure 90", "--sure: expected a number between 0 and 1, such as 0.9 for 90 %, got 90"),
        ("evaluate model x --compare nn --ray auto", "--compare is not supported with --ray"),
        ("data cifar10 -e x", "--encoder and --output must be given together"),
        ("correct photo.jpg", "say what is right or wrong"),
        (
            "predict model x.npz -o p.txt",
            "expected a name ending in .parquet, .csv or .json, or a folder .* got 'p.txt'",
        ),
    ],
)
def test_errors_come_before_any_work(words, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HCEPError, match=match):
        CliRunner().invoke(app, words.split(), catch_exceptions=False)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_option_is_a_usage_error():
    result = shown("fit", "--anker", "3")
    assert result.exit_code == 2
    assert "No such option" in result.output
