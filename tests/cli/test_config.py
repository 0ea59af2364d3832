"""Options from a TOML file: precedence, unknown keys, and the file that a run writes."""

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from hcep.cli.config import Config, save_resolved
from hcep.errors import HCEPError


@pytest.fixture
def app(tmp_path):
    application = typer.Typer()

    @application.command()
    def bake(
        context: typer.Context,
        what: str,
        oven_heat: Annotated[int, typer.Option("--oven-heat")] = 180,
        fan: bool = False,
        spice: Annotated[list[str] | None, typer.Option()] = None,
        config: Config = None,
    ) -> None:
        save_resolved(context, tmp_path)
        typer.echo(f"{what} {oven_heat} {fan} {spice}")

    @application.command()
    def eat() -> None:
        pass

    return application


def run(app, *words):
    return CliRunner().invoke(app, list(words))


def write(tmp_path, text) -> str:
    path = Path(tmp_path) / "options.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_file_takes_precedence_over_defaults_and_flags_over_the_file(app, tmp_path):
    path = write(tmp_path, 'oven-heat = 200\nfan = true\nspice = ["salt", "mint"]\n')
    assert run(app, "bake", "bread", "--config", path).stdout == "bread 200 True ['salt', 'mint']\n"
    assert run(app, "bake", "bread", "--config", path, "--oven-heat", "90").stdout.startswith("bread 90 True")


def test_the_table_of_the_command_takes_precedence_and_other_tables_are_ignored(app, tmp_path):
    path = write(tmp_path, "oven-heat = 200\n[bake]\noven-heat = 210\n[eat]\nfast = true\n")
    assert run(app, "bake", "bread", "--config", path).stdout.startswith("bread 210")


def test_lists_of_the_own_table_replace_those_at_the_top(app, tmp_path):
    path = write(tmp_path, 'spice = ["salt"]\n[bake]\nspice = ["mint"]\n')
    assert run(app, "bake", "bread", "--config", path).stdout == "bread 180 False ['mint']\n"


def test_a_table_becomes_names_and_values(app, tmp_path):
    path = write(tmp_path, "[bake.spice]\nsalt = 2\npepper = true\n")
    assert run(app, "bake", "bread", "--config", path).stdout == "bread 180 False ['salt=2', 'pepper=true']\n"


#: What `hcep fit` of version 0.1.0 wrote beside a model.
def test_unknown_key_names_the_nearest(app, tmp_path):
    result = run(app, "bake", "bread", "--config", write(tmp_path, "oven-heta = 1\n"))
    assert isinstance(result.exception, HCEPError)
    assert "unknown key 'oven-heta' in options.toml. Near matches: 'oven-heat'." in str(result.exception)


def test_bad_files(app, tmp_path):
    result = run(app, "bake", "bread", "--config", str(tmp_path / "absent.toml"))
    assert "cannot read" in str(result.exception)
    result = run(app, "bake", "bread", "--config", write(tmp_path, "= 3"))
    assert "is not TOML" in str(result.exception)


def test_a_key_of_a_hundred_thousand_dots_is_refused_at_once(app, tmp_path):
    result = run(app, "bake", "bread", "--config", write(tmp_path, "x." * 100_000 + "y = 1"))
    assert "has a line of 200,005 characters, more than 30,000" in str(result.exception)


def test_the_saved_configuration_repeats_the_run(app, tmp_path):
    first = run(app, "bake", 'rye "dark"', "--oven-heat", "90", "--spice", "salt")
    saved = str(tmp_path / "hcep-config.toml")
    assert Path(saved).read_text(encoding="utf-8").startswith('[bake]\nwhat = "rye \\"dark\\""\noven-heat = 90\n')
    assert run(app, "bake", "--config", saved).stdout == first.stdout
