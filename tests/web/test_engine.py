"""The engine without a server: who asks together is answered together, and a change is on disk when it counts."""

import asyncio
import io
import socket
import sys
import threading

import numpy as np
import pytest
from PIL import Image

import hcep
from hcep import HCEPClassifier
from hcep.cli.serve import _listen, serve
from hcep.embeddings.images import ImageProblem
from hcep.errors import HCEPError, MissingExtraError
from hcep.explain import explain_images
from hcep.explain.corrections import Corrections
from hcep.models import read_model
from hcep.pursuit.limits import Request
from hcep.web.batching import Batcher, ServerBusyError
from hcep.web.engine import Engine, Limits, PhotoNotFoundError, ReadOnlyModelError
from hcep.web.project import Project
from tests.cli.test_own_data import COLOURS, TREE, picture
from tests.embeddings.encoders.tiny_onnx import mean_colour
from tests.explain.test_where_photos import encoder, half_red
from tests.taxonomy.naming.bear_space import BEARS, bear_images


def test_items_that_arrive_meanwhile_are_batched():
    sizes, go = [], threading.Event()

    def double(items):
        go.wait(10)
        sizes.append(len(items))
        return [2 * item for item in items]

    async def ask():
        batcher = Batcher(double, size=4, limit=10)
        first = asyncio.create_task(batcher(0))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(batcher(i)) for i in range(1, 7)]
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(ask()) == [0, 2, 4, 6, 8, 10, 12]
    assert sizes == [1, 4, 2]


def test_one_bad_item_does_not_spoil_a_batch():
    async def ask():
        batcher = Batcher(lambda items: [1 / item for item in items], size=8, limit=8)
        return await asyncio.gather(*map(batcher, (1, 0, 2)), return_exceptions=True)

    first, bad, last = asyncio.run(ask())
    assert (first, last) == (1, 0.5)
    assert isinstance(bad, ZeroDivisionError)


def test_a_full_queue_rejects_further_items():
    async def ask():
        batcher = Batcher(list, size=1, limit=2)
        return await asyncio.gather(*map(batcher, range(4)), return_exceptions=True)

    found = asyncio.run(ask())
    assert found[:2] == [0, 1]
    assert all(isinstance(one, ServerBusyError) for one in found[2:])


@pytest.fixture
def folder(tmp_path):
    model = HCEPClassifier(BEARS, shrinkage=0.5, anchor=0.1).fit(*bear_images(24))
    hcep.save(model, tmp_path / "model", encoder=encoder("exact"))
    return tmp_path / "model"


def with_engine(folder, ask, **options):
    """What a question to an engine gives."""

    async def run():
        engine = Engine(folder, encoder=encoder(options.pop("kind", "exact")), **options)
        try:
            return await ask(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


@pytest.fixture
def project(tmp_path):
    """A project that is not fitted yet, and the name of an encoder for it."""
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra onnx)")
    project = Project(tmp_path / "project")
    for c, (label, colour) in enumerate(COLOURS.items()):
        for i in range(4):
            project.keep_photo(file_of(picture(colour, 10 * c + i)), f"{label}/{i}.png")
    project.set_tree(TREE)
    (tmp_path / "mean.onnx").write_bytes(mean_colour())
    return project, f"onnx:{tmp_path}/mean.onnx"


def test_a_kept_photo_is_learned_from_after_a_restart(project):
    project, name = project
    project.set_keep(True)

    async def correct():
        engine = Engine(project=project, encoder=name, preprocessing={"size": 8})
        try:
            await engine.fit_project(print, lambda *step: None)
            data = file_of(picture(COLOURS["bus"], 99))
            photo = await engine.add_photo(data, "new.png")
            await engine.keep_photo(photo, data, "new.png")
            return await engine.correct(photo.id, label="cat", file="new.png")
        finally:
            await engine.close()

    async def learn():
        engine = Engine(project=project)
        try:
            return await engine.learn()
        finally:
            await engine.close()

    assert asyncio.run(correct()).file == str(project.photos / "new.png")
    assert asyncio.run(learn()).what.startswith("learned from 1 correction")


def test_a_project_is_fitted_with_another_encoder_and_answers_with_it(project):
    project, name = project
    steps = []
    with pytest.raises(HCEPError, match=r"preprocessing of images is unknown; give .*--preprocessing"):
        Engine(project=project, encoder=name)

    async def fit():
        engine = Engine(project=project, encoder=name, preprocessing={"size": 8})
        try:
            await engine.fit_project(print, lambda *step: steps.append(step))
            photo = await engine.add_photo(file_of(picture(COLOURS["bus"], 99)), "bus.png")
            return (await engine.explain(photo)).label, len(photo.embedding)
        finally:
            await engine.close()

    assert asyncio.run(fit()) == ("bus", 3)
    assert steps[-1][1] == "Fitting the model"
    assert read_model(project.model).encoder.name == name


def file_of(image, kind="PNG"):
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["exact", "inexact"])
def test_photos_are_explained_as_the_library_does(folder, kind):
    async def ask(engine):
        photo = await engine.add_photo(file_of(half_red()), "folder/red.png")
        return photo, await engine.explain(photo, why_not="bus", where=True)

    model = HCEPClassifier(BEARS, shrinkage=0.5, anchor=0.1).fit(*bear_images(24))
    hcep.save(model, folder, encoder=encoder(kind))
    photo, found = with_engine(folder, ask, kind=kind)
    expected = explain_images([half_red()], model, encoder=encoder(kind), where=True, why_not="bus")[0]
    assert photo.name == found.file == "red.png"
    assert (found.label, found.probability) == (expected.label, pytest.approx(expected.probability))
    assert np.allclose(found.maps.of("bear").shares, expected.maps.of("bear").shares)
    assert found.contrasts[0].lines() == expected.contrasts[0].lines()
    assert np.allclose(found.margin_map("bus").shares, expected.margin_map("bus").shares)


def test_the_last_used_photos_are_remembered_and_names_are_not_shared(folder):
    async def ask(engine):
        files = [file_of(Image.new("RGB", (20, 20), colour)) for colour in ("red", "green", "blue")]
        first, second = [await engine.add_photo(data, "mine.png") for data in files[:2]]
        again = await engine.add_photo(files[0], "yours.png")
        third = await engine.add_photo(files[2])
        with pytest.raises(PhotoNotFoundError, match="upload it again"):
            engine.photo(second.id)
        return again.name, engine.photo(first.id).name, engine.photo(third.id).id == third.id

    assert with_engine(folder, ask, limits=Limits(photos=2)) == ("yours.png", "mine.png", True)


@pytest.mark.slow
def test_dropped_photos_are_limited_per_page_and_in_all(folder, monkeypatch):
    many = pytest.importorskip("hcep.web.pages.many", reason="NiceGUI is not installed (extra web)")
    monkeypatch.setattr(many, "DROPPED", 2)
    monkeypatch.setattr(many, "DROPPED_IN_ALL", 3)

    async def ask(engine):
        collections = many.Collections(engine)
        photo = await engine.add_photo(file_of(half_red()))
        pages = [many.Dropped(collections), many.Dropped(collections)]
        for page in (pages[0], pages[0], pages[1]):
            await page.take(photo, "red.png")
        with pytest.raises(HCEPError, match="more than 2 photos"):
            await pages[0].take(photo, "red.png")
        with pytest.raises(ServerBusyError):
            await pages[1].take(photo, "red.png")
        del page, pages[0]  # as when its tab is closed
        await pages[0].take(photo, "red.png")
        return [(name, kept.features) for name, kept in pages[0].photos]

    assert with_engine(folder, ask) == [("red.png", None)] * 2


@pytest.mark.parametrize(
    ("data", "match"),
    [(b"", "empty"), (b"words", "not an image"), (bytes(300_000), "more than 0.2 MB"),
     (file_of(Image.new("1", (2000, 2000))), "at most 1,000,000 in all")],
)  # fmt: skip
def test_invalid_photos_are_rejected(folder, data, match):
    async def ask(engine):
        with pytest.raises(ImageProblem, match=match):
            await engine.add_photo(data)

    with_engine(folder, ask, limits=Limits(megabytes=0.2, megapixels=1.0))


def test_a_change_is_a_version_that_answers_at_once_and_can_be_undone(folder):
    async def ask(engine):
        red = await engine.add_photo(file_of(Image.new("RGB", (20, 20), "red")))
        before = (await engine.explain(red)).name
        other = [await engine.add_photo(file_of(Image.new("RGB", (20, 20), (200 + i, 9, i)))) for i in range(3)]
        await engine.add_class("ice bear", "bear", other)
        assert "ice bear" in read_model(folder).classes
        await engine.correct(red.id, label="ice bear", who="Ada")
        said = (await engine.explain(red)).name
        done = await engine.undo_change()
        assert "ice bear" in done.what
        # What was said of a class that is gone is kept, and has no effect.
        assert engine.corrections.in_force[red.id].label == "ice bear"
        return before, said, (await engine.explain(red)).name, len(engine.saved.training.history)

    assert with_engine(folder, ask) == ("polar bear", "ice bear", "polar bear", 0)


def test_invalid_corrections_and_changes_are_rejected(folder):
    async def ask(engine):
        with pytest.raises(HCEPError, match="the correction is empty"):
            await engine.correct("a" * 64)
        with pytest.raises(HCEPError, match="no such thing"):
            await engine.correct("a" * 64, label="no such thing")
        with pytest.raises(PhotoNotFoundError, match="no correction"):
            await engine.undo_correction("a" * 64)
        with pytest.raises(PhotoNotFoundError, match="in the store"):
            await engine.add_stored_photo(0)
        engine.read_only = True
        with pytest.raises(ReadOnlyModelError, match="hcep open"):
            await engine.undo_change()
        assert not engine.corrections_file.exists()

    with_engine(folder, ask)


def test_corrections_with_unknown_concepts_do_not_stop_a_server(tmp_path):
    file = tmp_path / "corrections.jsonl"
    Corrections(file, missing=True).add("a" * 64, label="gone")
    with pytest.raises(HCEPError, match="line 1"):
        Corrections(file, BEARS)
    kept = Corrections(file, BEARS, lenient=True)
    assert kept.requests(["a" * 64])[0] == Request()
    assert kept.in_force["a" * 64].label == "gone"


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtraError, match=r"hcep\[web\]"):
        serve()


def test_a_port_in_use_is_an_error():
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(HCEPError, match="choose another port with --port"),
    ):
        _listen("127.0.0.1", taken.getsockname()[1])
