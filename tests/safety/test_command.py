"""The command itself: every error one sentence, a bug told as one, Ctrl-C answered at once."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from hcep.cli import app as app_module
from hcep.embeddings import Embeddings
from hcep.embeddings.store.embedding_store import EmbeddingStore
from hcep.embeddings.store.writer import import_embeddings

COMMAND = [sys.executable, "-c", "from hcep.cli import main; main()"]


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command inside this process; gives exit code, output and errors."""

    def hcep(*arguments):
        monkeypatch.setattr(sys, "argv", ["hcep", *map(str, arguments)])
        monkeypatch.setattr(app_module, "answer_interrupts", lambda: None)
        with pytest.raises(SystemExit) as ended:
            app_module.main()
        return ended.value.code or 0, *capsys.readouterr()

    return hcep


def broken(*_arguments, **_options):
    raise KeyError("nothing [here]\x1b")


def test_errors_of_the_program_are_reported_as_bugs(run, monkeypatch):
    monkeypatch.setattr("hcep.embeddings.store.manifest.parse_json", broken)
    code, _, said = run("info", os.path.dirname(__file__), "--check")
    assert code == 2  # no store there: that is about the input
    assert "manifest.json is missing" in said
    monkeypatch.setattr("hcep.embeddings.EmbeddingStore", broken)
    code, _, said = run("info", "my store", "--check")
    assert code == 70
    assert said.startswith("error: this is a bug in hcep ")
    assert said.endswith("please report it with the output of: hcep --debug info 'my store' --check\n")
    assert r"KeyError: 'nothing [here]\x1b' (test_command.py:" in said


def test_debug_shows_the_traceback_of_either(run, monkeypatch):
    from hcep.errors import HCEPError

    for arguments in (["--debug", "info", "nowhere", "--check"], ["info", "nowhere", "--check", "--debug"]):
        monkeypatch.setattr(sys, "argv", ["hcep", *arguments])
        with pytest.raises(HCEPError, match="no embedding store"):
            app_module.main()


def test_no_memory_is_one_sentence(run, monkeypatch):
    def hungry(*_arguments):
        raise MemoryError

    monkeypatch.setattr("hcep.embeddings.EmbeddingStore", hungry)
    code, _, said = run("info", "store", "--check")
    assert (code, said) == (2, "error: there is not enough memory; pass fewer images at a time\n")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 5000, "a = \x00", 'a = "', "=" * 2_000_000])
def test_a_hostile_configuration_is_one_sentence(run, tmp_path, text):
    (tmp_path / "c.toml").write_text(text)
    code, _, said = run("fit", "--config", tmp_path / "c.toml", "x", "-o", "y")
    assert code == 2
    assert said.startswith("error: --config: ")
    assert said.count("\n") == 1


# -- stores --------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    import_embeddings(Embeddings(X, labels=np.array(["a", "b"] * 25)), tmp_path / "store", encoder="e")
    return tmp_path / "store"


def test_a_store_is_checked_and_repaired(run, store):
    assert run("info", store, "--check")[0] == 0
    (shard,) = store.glob("shard-*.parquet")
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    code, out, _ = run("info", store, "--check")
    assert code == 1
    assert "damaged: shard-000000.parquet: its checksum differs from the one in the manifest" in out
    code, out, _ = run("info", store, "--repair")
    assert (code, "1 damaged file removed, 0 images left; run `hcep encode` again" in out) == (0, True)
    assert len(EmbeddingStore(store)) == 0
    assert run("info", store, "--check")[0] == 0


# -- Ctrl-C --------------------------------------------------------------------------------------------------------

BUSY = """
import sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from hcep.cli.app import answer_interrupts
answer_interrupts()
def work():
    print("begin", flush=True)
    time.sleep(20)
with ThreadPoolExecutor(1) as pool:
    pool.submit(work).result()
"""


def interruptible(command):
    """A process that an interrupt reaches, also where the tests themselves run in the background of a shell."""
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def test_an_interrupt_is_answered_at_once_and_obeyed_within_two_seconds():
    with interruptible([sys.executable, "-c", BUSY]) as process:
        assert process.stdout.readline() == b"begin\n"
        started = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        # Python's own account of the interrupt may come before, between or after
        assert any(b"stopping" in line for line in process.stderr)
        assert time.monotonic() - started < 1
        process.communicate(timeout=10)
        assert time.monotonic() - started < 3
        assert process.returncode == 130


@pytest.mark.slow
@pytest.mark.alone
def test_an_interrupted_fit_stops_soon_and_leaves_the_old_model(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "many.npz", vectors=rng.normal(size=(50_000, 768)).astype(np.float32), labels=np.arange(50_000) % 500
    )
    np.savez(tmp_path / "few.npz", vectors=rng.normal(size=(40, 8)).astype(np.float32), labels=np.arange(40) % 4)
    model = tmp_path / "model"
    subprocess.run(
        [*COMMAND, "fit", tmp_path / "few.npz", "--hierarchy", "flat", "-o", model], check=True, capture_output=True
    )
    before = (model / "model.json").read_bytes()
    fit = [*COMMAND, "fit", tmp_path / "many.npz", "--hierarchy", "flat", "--overwrite", "-o"]
    started = time.monotonic()
    subprocess.run([*fit, tmp_path / "whole"], check=True, capture_output=True)
    whole = time.monotonic() - started
    for share in (0.25, 0.4, 0.55):  # of the first fit, which may be slower than those that follow
        process = interruptible([*fit, model])
        time.sleep(share * whole)
        assert process.poll() is None, "it is done before it is interrupted"
        started = time.monotonic()
        os.kill(process.pid, signal.SIGINT)
        said = process.communicate(timeout=30)[1]
        assert time.monotonic() - started < 2.5
        assert b"stopping" in said
        assert (model / "model.json").read_bytes() == before
