"""What the photo page says, without a browser: answers in words, what-if, certainty, what training photos tell."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import hcep
from hcep import HCEPClassifier
from hcep.datasets import find_hierarchy
from hcep.embeddings import Embeddings, import_embeddings
from hcep.errors import HCEPError
from hcep.web.batching import ServerBusyError
from hcep.web.pages.session import PhotoSession, training_summary
from tests.explain.test_where_photos import encoder, half_red
from tests.taxonomy.naming.bear_space import BEARS, bear_images
from tests.web.test_engine import file_of, with_engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tmp_path, (X, y) = tmp_path_factory.mktemp("models"), bear_images(24)
    model = HCEPClassifier(BEARS, shrinkage=0.5, anchor=0.1).fit(X, y)
    hcep.save(model, tmp_path / "plain", encoder=encoder("exact"))
    hcep.save(model.calibrate(*bear_images(24, seed=1)), tmp_path / "calibrated", encoder=encoder("exact"))
    return tmp_path


def visited(folder, use, **options):
    """The result of using a session with a half-red photo."""

    async def ask(engine):
        session = PhotoSession(engine, await engine.add_photo(file_of(half_red()), "red.png"))
        await session.ask()
        return await use(session)

    return with_engine(folder, ask, **options)


def test_an_impossible_request_changes_nothing(folder):
    async def use(session):
        drawn = []
        session.on_answer.append(lambda: drawn.append(session.headline().headline))
        await session.ask(("bus",))
        with pytest.raises(HCEPError, match="no path has"):
            await session.ask(("bus", "grizzly"))
        assert (session.force, session.answer.label) == (("bus",), "bus")
        await session.ask()
        return drawn, session.first is session.answer

    assert visited(folder / "plain", use) == (["A bus, >99 %", visited(folder / "plain", first_words)], True)


async def first_words(session):
    return session.headline().headline


def test_sure_of_the_class_of_a_concept_or_of_nothing(folder):
    async def use(session):
        said = []
        fields = ("answer", "answer_name", "answer_probability")
        for *level, unlike in (
            ("polar_bear", "polar bear", 0.93, False), ("bear", "bear", 0.95, False), (None, None, None, False),
            ("polar_bear", "polar bear", 0.93, True),
        ):  # fmt: skip
            session.answer = session.answer.replaced(**dict(zip(fields, level, strict=True)), unlike=unlike)
            said.append((session.headline(), session.answer.headline()))
        return said

    sure, above, nothing, unlike = visited(folder / "plain", use)
    for page, line in (sure, above, nothing, unlike):
        assert line.lower().startswith(page.headline.lower())
        assert page.sentence.endswith("This is the model's own estimate; it was not checked on held-out photos.")
    assert (sure[0].headline, sure[0].concept) == ("A polar bear, 93 %", "polar_bear")
    assert (above[0].headline, above[0].concept) == ("A bear, 95 %", "bear")
    assert above[0].sentence.startswith("Perhaps a polar bear, ")
    guess = above[0].sentence.partition(" This is")[0].removeprefix("Perhaps ").removesuffix(".")
    assert nothing[0].sentence.startswith("Nothing is sure enough. ")
    assert (nothing[0].headline, nothing[0].concept) == (f"Perhaps {guess}", BEARS.root)
    assert "it may be none of the known classes" in unlike[0].sentence


def test_the_surer_the_answer_the_less_specific_it_is(folder):
    async def use(session):
        levels = []
        for sure in (0.01, 0.3, 0.6, 0.9, 0.999999):
            await session.set_sure(sure)
            concept = session.headline().concept
            assert concept == BEARS.root or session.answer.answer_probability >= sure - 1e-9
            levels.append(BEARS.level(concept))
        await session.set_sure(0.9)
        return levels, session.headline(), session.path

    for kind, rests_on in (("plain", "own estimate"), ("calibrated", "answers are right")):
        levels, last, path = visited(folder / kind, use)
        assert levels == sorted(levels, reverse=True)
        assert levels[0] == len(path)
        assert rests_on in last.sentence
    assert "a kind of thing that the model does not know" in last.sentence  # half red, as no bear is


def test_corrections_decide_the_answer_except_in_what_if(folder):
    async def use(session):
        engine, photo, said = session.engine, session.photo.id, []
        own = session.headline()
        corrections = ({"label": "bus"}, {"force": "vehicle"}, {"label": "vehicle"}, {"force": BEARS.root})
        for what in (*corrections, {"forbid": "bear"}):
            await engine.correct(photo, **what, who="Ada")
            await session.ask()
            said.append(session.headline())
            await session.ask((), ("polar_bear",))  # not held against what somebody said
            contrast, _ = await session.contrast("polar_bear")
            assert contrast.rival.label == "polar_bear"
            with pytest.raises(HCEPError, match="part of this image's answer"):
                await session.contrast(session.end)
            await engine.undo_correction(photo)
        await session.ask()
        assert session.headline() == own
        return said

    bus, vehicle, labelled, none, no_bear = visited(folder / "plain", use)
    assert (bus.headline, bus.sentence, bus.concept) == ("A bus.", "Corrected by Ada.", "bus")
    assert (vehicle.headline, vehicle.concept) == ("A vehicle.", "vehicle")
    assert (labelled.headline, labelled.concept) == ("A vehicle.", "vehicle")
    assert (none.headline, none.concept) == ("None of the known classes.", BEARS.root)
    assert none.sentence.startswith("Corrected by Ada. The model's guess: a polar bear")
    assert no_bear.concept == "vehicle"  # which one, the model is not sure, and nobody said
    assert no_bear.sentence.startswith("Not bear: corrected by Ada. Perhaps a ")


def test_occlusion_maps_are_made_only_when_they_are_shown(folder):
    async def use(session):
        before = session.answer.maps
        maps = await session.maps()
        return before, maps.how, session.answer.maps is maps

    fitted = HCEPClassifier(BEARS, shrinkage=0.5, anchor=0.1).fit(*bear_images(24))
    hcep.save(fitted, folder / "no", encoder=encoder("none"))
    assert visited(folder / "no", use, kind="none") == (None, "occlusion", True)


def test_training_photos_give_typical_photos_and_the_range_of_coefficients(folder, tmp_path):
    X, y = bear_images(24)
    files = [tmp_path / f"{i}.png" for i in range(len(X))]
    for file in files[: len(X) // 2]:  # the others are gone
        Image.new("RGB", (9, 9), "red").save(file)
    arrays = Embeddings(X.astype(np.float32), y, paths=np.array(list(map(str, files))))
    import_embeddings(arrays, tmp_path / "store", encoder="exact", fingerprint=encoder("exact").fingerprint)

    async def use(session):
        known = await training_summary(session.engine, "bear")
        assert await training_summary(session.engine, "bear") is known
        gone = [await training_summary(session.engine, label) for label in BEARS.leaves]
        return known, min(len(one.photos) for one in gone)

    known, fewest = visited(folder / "plain", use, store=tmp_path / "store")
    assert fewest == 0
    assert all(uri.startswith("data:image/jpeg;base64,") for uri, _ in known.photos)
    assert {of for _, of in known.photos} <= {"polar bear", "grizzly"}
    fitted = HCEPClassifier(BEARS, shrinkage=0.5, anchor=0.1).fit(X, y)
    paths = fitted.path_model().pursue(X[np.isin(y, ["polar_bear", "grizzly"])].astype(np.float32))
    own = [paths.coefficients(i)[0] for i, path in enumerate(paths.paths) if path[0] == "bear"]
    assert known.range == pytest.approx(np.quantile(own, [0.05, 0.95]).tolist(), rel=1e-4)
    assert visited(folder / "plain", no_photos) is None


async def no_photos(session):
    return await training_summary(session.engine, "bear")


def test_meanings(folder):
    async def use(session):
        return [session.meaning(concept) for concept in ("bear", "polar_bear")]

    assert visited(folder / "plain", use) == ["One of the most general concepts.", "A kind of bear."]


def test_a_rank_above_a_single_concept_is_not_another_name_of_it(tmp_path):
    (tmp_path / "tree.csv").write_text("family,genus,species\nIridaceae,Iris,I. pumila\nPoaceae,Poa,P. annua\n")
    h = find_hierarchy(str(tmp_path / "tree.csv"))
    y = np.repeat(h.leaves, 3)
    X = np.repeat(np.eye(2), 3, axis=0) + np.random.default_rng(0).normal(0, 0.1, (6, 2))
    merged = HCEPClassifier(h, shrinkage=0.5, anchor=0.1).fit(X, y).hierarchy_
    words = PhotoSession.meaning(SimpleNamespace(hierarchy=merged, step=lambda concept: None), merged.leaves[0])
    assert "Also called" not in words
    assert words.endswith("The only concept below Iridaceae (family) → Iris (genus).")


def test_errors_become_notices_in_plain_words(monkeypatch, caplog):
    pytest.importorskip("nicegui", reason="NiceGUI is not installed (extra web)")
    from hcep.web.pages import frame

    told = []
    monkeypatch.setattr(frame, "notice", lambda words, *, problem: told.append((words, problem)))
    monkeypatch.setattr(frame, "ui", SimpleNamespace(context=SimpleNamespace(client=nullcontext())))

    def fails(error):
        async def handler():
            raise error

        asyncio.run(frame.guarded(handler)())

    for error in (ServerBusyError(), HCEPError("no path has 'cat'"), ZeroDivisionError("secret")):
        fails(error)
    assert [words for words, _ in told] == [frame.BUSY, "no path has 'cat'", frame.SORRY]
    assert all(problem for _, problem in told)
    assert "The server is busy" in frame.BUSY
    assert "ZeroDivisionError" in caplog.text  # for who runs the server
