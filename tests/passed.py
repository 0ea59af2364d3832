"""For CI, which runs the tests twice, with few packages and with all: leave out what cannot differ in the second run.

``-p tests.passed --record-passed FILE`` writes the tests that passed; ``-p tests.passed --skip-passed FILE`` leaves
exactly those out. A test is not written if its file looked for a package that is not installed, or started a process
(which may look for one), or if its room depends on extras. If an installed package has changed since, every test runs.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

#: Rooms that behave according to the extras that are installed.
REPEATED = ("tests/web/", "tests/ray/", "tests/embeddings/")
INSTALLERS = ("pip", "setuptools", "wheel")
PROCESS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.system")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-passed", type=Path, metavar="FILE", help="write the ids of the tests that passed")
    parser.addoption("--skip-passed", type=Path, metavar="FILE", help="leave out the tests that passed before")


def pytest_configure(config: pytest.Config) -> None:
    if config.inipath is None:
        raise pytest.UsageError("pytest found no settings; write --skip-passed=FILE, with the sign =")
    if config.option.record_passed:
        config.pluginmanager.register(Recorder(config.option.record_passed))
    elif config.option.skip_passed:
        config.pluginmanager.register(Skipper(config.option.skip_passed))


def installed() -> dict[str, str]:
    """The version of every installed package but those that only install others."""
    return {one.name: one.version for one in distributions() if one.name not in INSTALLERS}


def file_of(test: str) -> str:
    return test.partition("::")[0]


class Recorder:
    """Notes which tests passed, and which files depend on what is installed; workers tell it in their reports."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.current = ""
        self.dependent: set[str] = set()
        self.outcomes: dict[str, set[str]] = {}
        sys.meta_path.append(self)
        sys.addaudithook(self.audit)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Asked last, about a package that no other finder has found."""
        self.dependent.add(self.current)

    def audit(self, event: str, arguments: object) -> None:
        if event in PROCESS:
            self.dependent.add(self.current)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector):
        self.current = file_of(collector.nodeid)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        self.current = file_of(item.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> None:
        if self.current in self.dependent:
            item.user_properties.append(("depends on what is installed", True))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.outcomes.setdefault(report.nodeid, set()).add(report.outcome)
        if report.user_properties:
            self.dependent.add(file_of(report.nodeid))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            passed = [test for test, outcomes in self.outcomes.items() if outcomes == {"passed"}]
            kept = [test for test in passed if not test.startswith(REPEATED) and file_of(test) not in self.dependent]
            self.file.write_text(json.dumps({"installed": installed(), "passed": kept}), encoding="utf-8")


class Skipper:
    """Leaves out the tests of a file that `Recorder` wrote."""

    def __init__(self, file: Path) -> None:
        self.passed: set[str] = set()
        if not file.exists():
            self.header = f"--skip-passed: {file} does not exist; every test runs"
            return
        record, now = json.loads(file.read_text(encoding="utf-8")), installed()
        if changed := sorted(name for name, version in record["installed"].items() if now.get(name) != version):
            self.header = f"--skip-passed: every test runs, for these packages changed: {', '.join(changed)}"
            return
        self.passed = set(record["passed"])
        self.header = f"--skip-passed: {len(self.passed)} tests passed before and are left out"

    def pytest_report_header(self) -> str:
        return self.header

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if left_out := [item for item in items if item.nodeid in self.passed]:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if item.nodeid not in self.passed]
