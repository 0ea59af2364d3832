"""Hundreds of random damages: each is refused by the loader's own error, or changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcep import HCEPClassifier
from hcep.models import read_model
from hcep.models.loading import load_model
from hcep.models.saving import pack, save_model
from hcep.models.schema import checksum
from tests.models.damage import (
    flipped,
    is_refused,
    names_are_refused,
    names_or_none,
    read_files,
    repacked_or_none,
    resealed,
    spliced,
    truncated,
)

Damage = Callable[[bytes, np.random.Generator], bytes]
FILES = ["model.json", "hierarchy.json", "model.safetensors", "README.md"]


@pytest.mark.parametrize("damage", [flipped, truncated, spliced])
@pytest.mark.parametrize("name", FILES)
def test_damaged_bytes_are_refused_or_change_nothing(
    name: str, damage: Damage, logistic_model: HCEPClassifier, tmp_path: Path
) -> None:
    model = logistic_model
    folder = save_model(model, tmp_path / "model")
    original, data = pack(model), (folder / name).read_bytes()
    rng = np.random.default_rng([FILES.index(name), len(data)])
    for _ in range(20):
        (folder / name).write_bytes(damage(data, rng))
        assert repacked_or_none(folder) in (None, original)
    (folder / name).write_bytes(data)
    assert pack(load_model(folder)) == original


@pytest.mark.parametrize("damage", [flipped, truncated, spliced])
@pytest.mark.parametrize("name", ["hierarchy.json", "model.safetensors"])
def test_damage_under_a_matching_checksum_raises_no_other_error(
    name: str, damage: Damage, saved_logistic: Path
) -> None:
    files = read_files(saved_logistic)
    rng = np.random.default_rng(7)
    refused = [is_refused(resealed({**files, name: damage(files[name], rng)})) for _ in range(100)]
    assert sum(refused) > 0


@pytest.mark.parametrize("damage", [flipped, truncated, spliced])
@pytest.mark.parametrize("name", ["model.json", "hierarchy.json", "atoms.json"])
def test_damaged_names_are_refused_or_the_same_and_the_model_still_loads(
    name: str, damage: Damage, saved_named: Path
) -> None:
    data, original = (saved_named / name).read_bytes(), read_model(saved_named).atom_names
    model = pack(load_model(saved_named))
    rng = np.random.default_rng([FILES.index("model.json"), len(data)])
    for _ in range(30):
        (saved_named / name).write_bytes(damage(data, rng))
        assert names_or_none(saved_named) in (False, original)
        assert repacked_or_none(saved_named) in (None, model)
    (saved_named / name).write_bytes(data)
    assert read_model(saved_named).atom_names == original


def test_damage_of_names_under_a_matching_checksum_raises_no_other_error(saved_named: Path) -> None:
    files = read_files(saved_named)
    rng = np.random.default_rng(11)
    damages = [damage for damage in (flipped, truncated, spliced) for _ in range(100)]
    refused = [names_are_refused(files, damage(files["atoms.json"], rng)) for damage in damages]
    assert 100 < sum(refused) <= 300


def test_junk_in_any_field_of_the_names_raises_no_other_error(saved_named: Path) -> None:
    files = read_files(saved_named)
    all_places = places(json.loads(files["atoms.json"]))[1:]
    rng = np.random.default_rng(5)
    outcomes = []
    for _ in range(400):
        document = json.loads(files["atoms.json"])
        replaced(document, all_places[int(rng.integers(len(all_places)))], JUNK[int(rng.integers(len(JUNK)))])
        outcomes.append(names_are_refused(files, json.dumps(document).encode("utf-8")))
    assert 250 < sum(outcomes) < 400


JUNK = [
    None,
    True,
    -1,
    0,
    1,
    2.5,
    1e308,
    10**400,
    float("nan"),
    "",
    "auto",
    "inf",
    "../x",
    "\ud800",
    [],
    [[]],
    {},
    {"a": 1},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values in a JSON document."""
    below = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [path, *(place for key, inner in below for place in places(inner, (*path, key)))]


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> None:
    *above, last = path
    for key in above:
        document = document[key]
    document[last] = value


def test_junk_in_any_field_under_a_matching_checksum_raises_no_other_error(saved: Path) -> None:
    files = read_files(saved)
    all_places = places(json.loads(files["model.json"]))[1:]
    rng = np.random.default_rng(3)
    outcomes = []
    for _ in range(400):
        path = all_places[int(rng.integers(len(all_places)))]
        value = JUNK[int(rng.integers(len(JUNK)))]
        document = json.loads(files["model.json"])
        replaced(document, path, value)
        outcomes.append(is_refused(with_document(files, document)))
    assert 300 < sum(outcomes) <= 400


def with_document(files: dict[str, bytes], document: dict[str, Any]) -> dict[str, bytes]:
    document["checksum"] = checksum(document)
    return {**files, "model.json": json.dumps(document).encode("utf-8")}
