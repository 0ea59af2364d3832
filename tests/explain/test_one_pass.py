"""`hcep explain` does each piece of work once: one listing, one reading of each photo, one product, one search."""

from __future__ import annotations

import pytest

from tests.calls import counting
from tests.cli.test_own_data import ENCODER, model, own_cache, photos, run, tree  # noqa: F401

#: Functions that are counted.
COUNTED = {
    "listings": ("explain/finding.py", "find_images"),
    "readings": ("embeddings/images.py", "open_image"),
    "products": ("dictionary/path_problem.py", "PathProblem.products"),
    "searches": ("pursuit/search.py", "search"),
    "scorings of a moved image": ("pursuit/folded.py", "for_scores"),
    "path problems": ("dictionary/path_problem.py", "build_path_problem"),
}


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        ((), {}),
        (("--force", "animal", "--forbid", "dog"), {}),
        # Maps of this encoder are by occlusion, which takes so long that photos are answered one by one.
        (("--where",), {"products": 3, "searches": 3}),
        # The only further work: what the model says just beyond the smallest change that makes two classes equal.
        (("--why-not", "bus", "--why-not", "car", "--json"), {"scorings of a moved image": 6}),
    ],
)
def test_three_photos_are_listed_read_multiplied_and_searched_once(model, photos, options, extra):  # noqa: F811
    files = [photos / "val" / "cat" / f"{i}.png" for i in range(3)]
    with counting(COUNTED) as counts:
        run("explain", model, *files, "--encoder", ENCODER, *options)
    once = {"listings": 1, "readings": 3, "products": 1, "searches": 1, "path problems": 1}
    assert counts == once | extra
