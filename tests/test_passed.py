"""CI leaves out of its second run what passed in the first and cannot differ, and nothing else."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {
    "test_plain.py": """
        import pytest
        def test_passes(): pass
        @pytest.mark.parametrize("x", [1, 2])
        def test_of_two(x): assert x == 1
        @pytest.mark.skip(reason="not today")
        def test_skipped(): pass
        @pytest.fixture
        def torn():
            yield
            raise ValueError
        def test_teardown_fails(torn): pass
    """,
    "test_optional.py": """
        import pytest
        @pytest.fixture(scope="module")
        def has_it():
            try:
                import no_such_package
            except ImportError:
                return False
        def test_looks_for_a_package(has_it): assert not has_it
        def test_of_the_same_fixture(has_it): assert not has_it
    """,
    "test_at_import.py": """
        from importlib.util import find_spec
        found = find_spec("no_such_package")
        def test_of_a_flag(): assert not found
    """,
    "test_process.py": """
        import subprocess, sys
        def test_starts_a_process(): subprocess.run([sys.executable, "-c", "1"], check=True)
    """,
    "tests/web/test_page.py": "def test_of_a_room_with_extras(): pass",
}


def run(folder, *options):
    """The output of pytest, and the tests that ran."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "xdist", "-p", "tests.passed", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stdout, set(re.findall(r"\S+::\S+(?= PASSED| FAILED| SKIPPED)", done.stdout))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project after its first run, with workers as in CI."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "tests" / "web").mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(re.sub("^        ", "", text, flags=re.MULTILINE), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n", encoding="utf-8")
    run(folder, "-n", "2", "--dist", "loadfile", "--record-passed", "passed.json")
    return folder


def test_only_what_passed_and_cannot_differ_is_left_out(folder):
    _, every = run(folder)
    output, again = run(folder, "--skip-passed", "passed.json")
    assert len(every) == 10
    assert every - again == {"test_plain.py::test_passes", "test_plain.py::test_of_two[1]"}
    assert "2 tests passed before and are left out" in output
    assert "2 deselected" in output


def test_the_file_may_be_anywhere_if_pytest_cannot_take_it_for_a_test(folder, tmp_path):
    elsewhere = tmp_path / "passed.json"
    elsewhere.write_bytes((folder / "passed.json").read_bytes())
    assert "configfile: pytest.ini" in run(folder, f"--skip-passed={elsewhere}")[0]
    assert run(folder, "--skip-passed", elsewhere) == ("", set())  # pytest looks for its settings beside the file


def test_every_test_runs_without_the_file_of_the_first_run(folder):
    output, again = run(folder, "--skip-passed", "absent.json")
    assert len(again) == 10
    assert "absent.json does not exist; every test runs" in output


def test_every_test_runs_if_a_package_has_changed_since(folder):
    record = json.loads((folder / "passed.json").read_text(encoding="utf-8"))
    record["installed"]["numpy"] = "0.1"
    (folder / "older.json").write_text(json.dumps(record), encoding="utf-8")
    output, again = run(folder, "--skip-passed", "older.json")
    assert len(again) == 10
    assert "every test runs, for these packages changed: numpy" in output
