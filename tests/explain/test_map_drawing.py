import numpy as np
import pytest
from PIL import Image

from hcep.explain.map_drawing import AGAINST, FOR, common_limit, drawn_on, overlay, strip
from hcep.explain.where import EvidenceMap

SHARES = np.array([[1.0, 0.0], [0.0, -0.5]])
GREY = Image.new("RGB", (80, 40), (128, 128, 128))


def test_evidence_for_is_red_against_is_blue_and_none_is_transparent():
    pixels = np.asarray(overlay(EvidenceMap(SHARES, 0.0), 1.0, (2, 2)))
    assert pixels[0, 0].tolist() == [*FOR, 183]
    assert pixels[1, 1].tolist() == [*AGAINST, 91]
    assert pixels[0, 1, 3] == pixels[1, 0, 3] == 0


def test_one_scale_for_all_maps():
    assert common_limit([EvidenceMap(SHARES, 0.0), EvidenceMap(-3 * SHARES, 0.0)]) == 3.0
    assert common_limit([EvidenceMap(0 * SHARES, 0.0)]) == 1.0
    assert common_limit([]) == 1.0


def test_a_map_covers_the_part_that_the_model_sees():
    drawn = np.asarray(drawn_on(GREY, EvidenceMap(np.ones((3, 3)), 0.0), (20.0, 0.0, 60.0, 40.0), 1.0))
    assert (drawn[:, :20] == 128).all()
    assert (drawn[:, 60:] == 128).all()
    assert (drawn[:, 20:60, 0] > 128).all()


def test_padding_beyond_the_photo_is_cut_off():
    drawn = np.asarray(drawn_on(GREY, EvidenceMap(SHARES, 0.0), (0.0, -20.0, 80.0, 60.0), 1.0))
    assert drawn.shape == (40, 80, 3)


@pytest.mark.parametrize("names", [["animal", "cat"], ["a very long name of a concept that cannot fit", "x"]])
def test_a_strip_has_the_photo_and_a_picture_per_map(names):
    maps = [EvidenceMap(SHARES, 0.0), EvidenceMap(2 * SHARES, 0.0)]
    assert strip(GREY, maps, names, (0.0, 0.0, 80.0, 40.0), height=100).size == (3 * 200 + 2 * 8, 126)
