from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hcep.models import ModelError, read_model
from hcep.models.loading import load_model
from tests.models.damage import drop, edit_arrays, edit_document, edit_hierarchy, put


def test_there_is_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model at '.*nowhere': the folder does not exist"):
        load_model(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["model.json", "hierarchy.json", "model.safetensors"])
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(ModelError, match=f"no complete model at .*: the file {name} is missing"):
        load_model(saved)


def test_the_card_is_for_people_and_not_needed(saved: Path) -> None:
    (saved / "README.md").unlink()
    load_model(saved)


def test_a_file_that_cannot_be_read_is_named(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(ModelError, match=r"model.safetensors: cannot be read in .* \(Permission denied\)"):
        load_model(saved)


@pytest.mark.parametrize("name", ["hierarchy.json", "model.safetensors"])
def test_a_truncated_file_is_named_with_its_length(saved: Path, name: str) -> None:
    data = (saved / name).read_bytes()
    (saved / name).write_bytes(data[:-7])
    with pytest.raises(ModelError, match=f"{name}: {len(data) - 7:,} bytes where {len(data):,} were saved"):
        load_model(saved)


@pytest.mark.parametrize("name", ["hierarchy.json", "model.safetensors"])
def test_a_flipped_bit_is_noticed(saved: Path, name: str) -> None:
    data = bytearray((saved / name).read_bytes())
    data[len(data) // 2] ^= 1
    (saved / name).write_bytes(data)
    with pytest.raises(ModelError, match=rf"{name}: its content changed since it was saved: sha256 \w+… instead of"):
        load_model(saved)


def test_a_changed_number_in_the_document_is_noticed(saved: Path) -> None:
    text = (saved / "model.json").read_text(encoding="utf-8")
    document = json.loads(text)
    document["fitted"]["anchor"] += 1e-9
    (saved / "model.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ModelError, match=r"model.json: the content does not match its field 'checksum'"):
        read_model(saved)


def test_spacing_and_order_of_the_document_do_not_matter(saved: Path) -> None:
    document = json.loads((saved / "model.json").read_text(encoding="utf-8"))
    (saved / "model.json").write_text(json.dumps(document, sort_keys=True), encoding="utf-8")
    load_model(saved)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", r"model.json: not valid JSON"),
        (b"{", r"model.json: not valid JSON"),
        (b"\xff\xfe", r"model.json: not valid JSON \('utf-8' codec"),
        (b"[" * 100_000, r"model.json: not valid JSON"),
        (b"[]", r"model.json: the file must be a JSON object, got a list"),
        (b"{}", r"model.json: field 'format' is missing"),
        (b'{"fromat": "hcep-model"}', r"model.json: field 'format' is missing. Near matches: 'fromat'"),
        (b'{"format": "onnx"}', r'model.json: not a saved model: format must be "hcep-model", got \'onnx\''),
        (b'{"format": "hcep-model"}', r"model.json: version is None; this release of hcep reads versions 1 to 2"),
        (b'{"format": "hcep-model", "version": 3}', r"version is 3; .*: upgrade hcep, or save the model again"),
        (b'{"format": "hcep-model", "version": true}', r"version is True"),
    ],
)
def test_a_document_of_another_kind_is_refused(saved: Path, data: bytes, match: str) -> None:
    (saved / "model.json").write_bytes(data)
    with pytest.raises(ModelError, match=match):
        load_model(saved)


Edit = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (put("paramters", {}), r"model.json: unknown field 'paramters'. Near matches: 'parameters'"),
        (put("parameters/ancor", 1), r"unknown field 'parameters.ancor'. Near matches: 'anchor'"),
        (drop("fitted"), r"model.json: field 'fitted' is missing"),
        (drop("fitted/anchor"), r"model.json: field 'fitted.anchor' is missing"),
        (put("fitted", 3), r"model.json: fitted must be a JSON object, got 3"),
        (put("fitted/anchor", -1), r"fitted.anchor must be a finite number of at least 0, got -1"),
        (put("fitted/anchor", 10**400), r"fitted.anchor must be a finite number"),
        (put("fitted/anchor", float("inf")), r"fitted.anchor must be a finite number of at least 0, got inf"),
        (put("fitted/anchor", True), r"fitted.anchor must be a finite number"),
        (put("fitted/shrinkage", 0), r"fitted.shrinkage must be a finite number above 0 and at most 1, got 0"),
        (put("fitted/temperature", float("nan")), r"fitted.temperature must be a finite number above 0, got nan"),
        (put("fitted/temperature", None), r"fitted.temperature must be a number above 0, since there is no head"),
        (put("hcep_version", 1), r"hcep_version must be a string, got 1"),
        (put("n_dims", 0), r"n_dims must be an integer of at least 1, got 0"),
        (put("n_dims", "12"), r"n_dims must be an integer of at least 1, got '12'"),
        (put("feature_names", "abc"), r"feature_names must be a list of strings, got 'abc'"),
        (put("feature_names", ["a"]), r"feature_names must be a list of 12 names, one for each of n_dims"),
        (put("parameters/hierarchy", "../pets"), r"parameters.hierarchy must be one of None, 'fitted', got '../pets'"),
        (
            put("parameters/head", ["path"]),
            r"parameters.head must be one of .*, got \['path'\]",
        ),
        (put("parameters/signed", 0), r"parameters.signed must be true or false, got 0"),
        (put("parameters/beam_width", 0), r"parameters.beam_width must be an integer of at least 1, got 0"),
        (put("parameters/C", -1.0), r"parameters.C must be a finite number above 0"),
        (put("parameters/shrinkage", "Auto"), r"parameters.shrinkage must be a finite number above 0 and at most 1"),
        (put("transform/scale", 0.0), r"transform.scale must be a finite number above 0, got 0.0"),
        (put("transform/whitener", False), r"transform.shrinkage must be a number if whitener is true"),
        (put("head", "x" * 100), r"head must be a JSON object, got 'x{75}\.\.\."),
        (put("leave_one_out", {}), r"leave_one_out must be a list, got {}"),
        (put("leave_one_out", [3]), r"model.json: leave_one_out\[0\] must be a JSON object, got 3"),
        (put("encoder", "clip"), r"encoder must be a JSON object, got 'clip'"),
        (put("encoder/name", None), r"encoder.name must be a string, got None"),
        (put("training/images_per_class", []), r"training.images_per_class must be a JSON object, got \[\]"),
        (put("classes/dtype", "M8"), r"classes.dtype must be 'object' or 'U' and a width for strings, or an integer"),
        (put("classes/dtype", "U1"), r"classes.labels must be values that fit U1"),
        (put("classes/dtype", "U99999999"), r"classes.dtype must be a string type of at most 1024 characters"),
        (put("classes/dtype", "int64"), r"classes.labels must be a list of values of type int"),
        (put("classes/labels", []), r"classes.labels must be a list of at least one label, got \[\]"),
        (put("classes", {"dtype": "int8", "labels": [1000]}), r"classes.labels must be values that fit int8"),
        (put("classes", {"dtype": "bool", "labels": [0, 1]}), r"classes.labels must be a list of values of type bool"),
        (put("classes", {"dtype": "float32", "labels": [0.1]}), r"classes.labels must be values that fit float32"),
        (put("classes", {"dtype": "U3", "labels": ["dog", "cat"]}), r"classes.labels must be sorted, each label once"),
        (put("files/model.safetensors/bytes", 3), r"model.safetensors: [\d,]+ bytes where 3 were saved"),
        (put("files/model.safetensors/sha256", "0" * 64), r"model.safetensors: its content changed"),
    ],
)
def test_a_wrong_field_of_the_document_is_named(saved: Path, edit: Edit, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        load_model(edit_document(saved, edit))


def test_a_path_in_the_document_is_never_followed(saved: Path) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["files"]["../secret.json"] = document["files"].pop("hierarchy.json")

    with pytest.raises(ModelError, match=r"model.json: unknown field 'files.../secret.json'"):
        load_model(edit_document(saved, edit))


def test_a_hierarchy_file_is_not_taken_for_a_path(saved: Path) -> None:
    (saved / "secret.json").write_bytes((saved / "hierarchy.json").read_bytes())
    with pytest.raises(ModelError, match=r"hierarchy.json: the file must be a JSON object"):
        load_model(edit_hierarchy(saved, lambda text: str(saved / "secret.json")))


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda text: text[:-9], r"hierarchy.json: not a hierarchy file: invalid JSON"),
        (lambda text: text.replace('"version": 1', '"version": 7'), r"hierarchy.json: hierarchy file of version 7"),
        (lambda text: text.replace('"cat"', '"lion"'), r"classes.labels does not fit hierarchy.json: 'cat' is not a"),
        (
            lambda text: text.replace('"synsets": [', '"synsets": [{"id": "emu", "parents": ["animal"]},'),
            r"hierarchy.json: 7 leaves for 6 classes in model.json; no class has the leaf 'emu'",
        ),
        (
            lambda text: text.replace('"classes": {}', '"classes": {"cat": "dog"}'),
            r"hierarchy.json: 6 leaves for 6 classes in model.json; no class has the leaf 'cat'",
        ),
    ],
)
def test_a_wrong_hierarchy_is_named(saved: Path, edit: Callable[[str], str], match: str) -> None:
    with pytest.raises(ModelError, match=match):
        load_model(edit_hierarchy(saved, edit))


def test_two_classes_may_not_share_a_leaf(saved: Path) -> None:
    edit_hierarchy(saved, lambda text: text.replace('"classes": {}', '"classes": {"cot": "cat"}'))
    labels = ["bike", "bus", "car", "cat", "cot", "dog", "fox"]
    with pytest.raises(ModelError, match=r"6 leaves for 7 classes in model.json; two classes share one"):
        load_model(edit_document(saved, put("classes/labels", labels)))


def test_a_hierarchy_in_another_encoding_is_refused(saved: Path) -> None:
    (saved / "hierarchy.json").write_bytes(b'{"\xff"}')
    with pytest.raises(ModelError, match=r"hierarchy.json: not UTF-8 text"):
        load_model(edit_document(saved, lambda document: None))


Arrays = dict[str, np.ndarray]


def nan_at(name: str, *place: int) -> Callable[[Arrays], None]:
    def edit(arrays: Arrays) -> None:
        arrays[name] = arrays[name].copy()
        arrays[name][place] = np.nan

    return edit


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda a: a.pop("transform.whitener"), r"array 'transform.whitener' is missing, but model.json mentions it"),
        (lambda a: a.update({"head.coeff": np.zeros(2)}), r"model.safetensors: unknown array 'head.coeff'"),
        (
            lambda a: a.update(synset_embedings=np.zeros(2)),
            r"unknown array 'synset_embedings'. Near matches: 'synset_e",
        ),
        (
            lambda a: a.update(synset_embeddings=a["synset_embeddings"].astype(np.float32)),
            r"array 'synset_embeddings' must be of type F64, got F32",
        ),
        (
            lambda a: a.update(synset_embeddings=a["synset_embeddings"].astype(np.float16)),
            r"array 'synset_embeddings' must be of type F64, got F16",
        ),
        (
            lambda a: a.update(synset_embeddings=a["synset_embeddings"][1:]),
            r"array 'synset_embeddings' must have shape \(9, 12\), got \(8, 12\)",
        ),
        (
            lambda a: a.update({"leave_one_out.correct": np.zeros(3, bool)}),
            r"array 'leave_one_out.correct' must have shape \(\d+, any\), got \(3,\)",
        ),
        (nan_at("synset_embeddings", 3, 2), r"array 'synset_embeddings' has NaN or infinite values, .* at \[3, 2\]"),
        (nan_at("transform.whitener", 0, 0), r"array 'transform.whitener' has NaN or infinite values"),
        (
            lambda a: a.update(synset_embeddings=a["synset_embeddings"] + 1),
            r"row 0 of array 'synset_embeddings', the root's, must be zero",
        ),
    ],
)
def test_a_wrong_array_is_named(saved: Path, edit: Callable[[Arrays], Any], match: str) -> None:
    with pytest.raises(ModelError, match=match):
        load_model(edit_arrays(saved, edit))


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda a: a.update({"head.coef": a["head.coef"][:, 1:]}), r"array 'head.coef' must have shape \(6, 8\)"),
        (
            lambda a: a.update({"head.classes": a["head.classes"][::-1].copy()}),
            r"'head.classes' must count the classes",
        ),
    ],
)
def test_a_wrong_array_of_the_head_is_named(saved_logistic: Path, edit: Callable[[Arrays], Any], match: str) -> None:
    with pytest.raises(ModelError, match=match):
        load_model(edit_arrays(saved_logistic, edit))


def test_a_head_on_a_single_class_is_refused(saved_logistic: Path) -> None:
    with pytest.raises(ModelError, match=r"model.json: head must be null for a single class"):
        load_model(edit_document(saved_logistic, put("classes/labels", ["cat"])))


def test_a_boolean_array_holds_only_0_and_1(saved: Path) -> None:
    data = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(data[:-1] + b"\x07")  # booleans, the smallest type, come last
    with pytest.raises(ModelError, match=r"array 'leave_one_out.correct' must hold only 0 and 1"):
        load_model(edit_document(saved, lambda document: None))


@pytest.mark.parametrize("data", [b"", b"\x00" * 8, b"\xff" * 64, b"PK\x03\x04 a zip file"])
def test_bytes_that_are_not_safetensors_are_refused(saved: Path, data: bytes) -> None:
    (saved / "model.safetensors").write_bytes(data)
    with pytest.raises(ModelError, match=r"model.safetensors: not a readable safetensors file"):
        load_model(edit_document(saved, lambda document: None))


def test_a_pickle_is_refused_and_not_run(saved: Path, tmp_path: Path) -> None:
    trace = tmp_path / "was run"
    payload = f"cpathlib\nPath\n(V{trace}\ntRp0\n0cpathlib\nPath.touch\n(g0\ntR.".encode()
    (saved / "model.safetensors").write_bytes(payload)
    with pytest.raises(ModelError, match=r"not a readable safetensors file"):
        load_model(edit_document(saved, lambda document: None))
    assert not trace.exists()


def test_the_facts_need_only_the_document(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    assert read_model(saved).encoder is not None
