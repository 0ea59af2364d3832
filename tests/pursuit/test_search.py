"""The search that hb_omp, the classifier and explanations share: everything comes from one product per image."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from hcep import ConceptDictionary, HCEPError, hb_omp
from hcep.pursuit import SearchOptions, path_objectives, search
from hcep.pursuit.blocks import BLOCK

OPTIONS = [
    SearchOptions(),
    SearchOptions(beam_width=None),
    SearchOptions(beam_width=None, signed=True, anchor=0.03),
    SearchOptions(beam_width=2, tol=0.2, n_jobs=2),
]


@pytest.fixture
def images(pets_dictionary: ConceptDictionary) -> np.ndarray:
    """More than two blocks of images near the leaves."""
    rng = np.random.default_rng(0)
    leaves = pets_dictionary.leaf_embeddings
    return leaves[rng.integers(len(leaves), size=2 * BLOCK + 3)] + 0.3 * rng.standard_normal((2 * BLOCK + 3, 4))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_explained_shares_agree_with_the_residuals(
    images: np.ndarray, pets_dictionary: ConceptDictionary, options: SearchOptions, dtype: type
) -> None:
    result = search(images[:50].astype(dtype), pets_dictionary, options, explained=True)
    assert result.explained_shares is not None
    for i, x in enumerate(images[:50]):
        coefficients, atoms = (
            result.coefficients(i),
            result.codes.indices[result.codes.indptr[i] : result.codes.indptr[i + 1]],
        )
        left = [x - coefficients[:k] @ pets_dictionary.atoms[atoms[:k]] for k in range(1, len(atoms) + 1)]
        expected = [1 - (r @ r) / (x @ x) for r in left]
        shares = result.explained_shares[i]
        assert shares[: len(atoms)] == pytest.approx(expected, abs=1e-6)
        assert np.isnan(shares[len(atoms) :]).all()


def test_a_zero_image_has_explained_shares_of_one(pets_dictionary: ConceptDictionary) -> None:
    result = search(np.zeros((1, 4)), pets_dictionary, SearchOptions(), explained=True)
    assert result.explained_shares is not None
    assert result.explained_shares.tolist() == [[1.0, 1.0]]


def test_there_are_no_shares_by_default(images: np.ndarray, pets_dictionary: ConceptDictionary) -> None:
    assert search(images[:5], pets_dictionary, SearchOptions()).explained_shares is None


@pytest.mark.parametrize("options", OPTIONS)
def test_objectives_are_passed_on_block_by_block(
    images: np.ndarray, pets_dictionary: ConceptDictionary, options: SearchOptions
) -> None:
    out = np.full((len(images), 5), np.nan)
    search(
        images, pets_dictionary, options, on_objectives=lambda block, objectives, _: out.__setitem__(block, objectives)
    )
    assert np.array_equal(out, path_objectives(images, pets_dictionary, options.signed, options.anchor))


@pytest.mark.parametrize("options", OPTIONS)
def test_every_image_is_projected_once(
    images: np.ndarray, pets_dictionary: ConceptDictionary, options: SearchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("hcep.pursuit.search")
    blocks: list[tuple[int, int]] = []

    def counting(rows: np.ndarray, block: slice, *rest: Any) -> Any:
        blocks.append((block.start, block.stop))
        return project(rows, block, *rest)

    project = module.project
    monkeypatch.setattr(module, "project", counting)
    search(images, pets_dictionary, options, n_best=2, trace=True, explained=True, on_objectives=lambda *_: None)
    starts, stops = zip(*sorted(blocks), strict=True)
    assert (0, *stops) == (*starts, len(images))


@pytest.mark.parametrize("options", OPTIONS)
def test_search_agrees_with_hb_omp(
    images: np.ndarray, pets_dictionary: ConceptDictionary, options: SearchOptions
) -> None:
    spelled_out = hb_omp(
        images,
        pets_dictionary,
        beam_width=options.beam_width,
        tol=options.tol,
        signed=options.signed,
        anchor=options.anchor,
    )
    result = search(images, pets_dictionary, options)
    assert np.array_equal(result.nodes, spelled_out.nodes)
    assert np.array_equal(result.codes.data, spelled_out.codes.data)


def test_options_are_checked_when_they_are_created() -> None:
    with pytest.raises(HCEPError, match=r"beam_width must be a positive integer, or None for an exact search"):
        SearchOptions(beam_width=0)
    with pytest.raises(HCEPError, match=r"n_jobs must be a positive number of threads"):
        SearchOptions(n_jobs=0)


def test_options_of_hb_omp_are_keyword_only(images: np.ndarray, pets_dictionary: ConceptDictionary) -> None:
    with pytest.raises(TypeError, match="positional"):
        hb_omp(images, pets_dictionary, 8)  # type: ignore[misc]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_own_shares_add_up_to_the_share_in_the_paths_span(
    images: np.ndarray, pets_dictionary: ConceptDictionary, options: SearchOptions, dtype: type
) -> None:
    result = search(images[:50].astype(dtype), pets_dictionary, options, explained=True)
    assert result.own_shares is not None
    assert result.explained_shares is not None
    for i, x in enumerate(images[:50]):
        atoms = pets_dictionary.atoms[result.codes.indices[result.codes.indptr[i] : result.codes.indptr[i + 1]]]
        shares = result.own_shares[i, : len(atoms)]
        inside = [atoms[:k].T @ np.linalg.lstsq(atoms[:k].T, x, rcond=None)[0] for k in range(1, len(atoms) + 1)]
        assert np.cumsum(shares) == pytest.approx([(p @ p) / (x @ x) for p in inside], abs=1e-6)
        assert (shares >= 0).all()
        assert result.explained[i] == result.explained_shares[i, len(atoms) - 1]
