import json

import pyarrow.parquet as pq
import pytest

from experiments.records import Records, code_digest
from experiments.synthetic import Config
from hcep.errors import HCEPError


def test_rows_are_read_back(tmp_path):
    records = Records(tmp_path, "demo")
    records.add("k1", [{"label": "OMP", "accuracy": 0.5}])
    records.add("k2", [{"label": "NN", "accuracy": float("nan")}])
    again = Records(tmp_path, "demo")
    assert again.rows == [{"label": "OMP", "accuracy": 0.5}, {"label": "NN", "accuracy": None}]
    assert again.done == {"k1", "k2"}


def test_parquet_has_the_same_rows(tmp_path):
    Records(tmp_path, "demo").add("k", [{"label": "OMP", "n": 3}, {"label": "NN", "n": 4}])
    assert pq.read_table(tmp_path / "rows.parquet").to_pydict() == {
        "cell": ["k", "k"],
        "label": ["OMP", "NN"],
        "n": [3, 4],
    }


def test_rows_json_has_one_line_per_row(tmp_path):
    Records(tmp_path, "demo").add("k", [{"n": 1}, {"n": 2}])
    lines = (tmp_path / "rows.json").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if '"cell"' in line] == ['{"cell": "k", "n": 1},', '{"cell": "k", "n": 2}']


@pytest.mark.parametrize(
    ("settings", "data"), [({"seed": 1}, "d"), ({"seed": 0, "method": "omp"}, "d"), ({"seed": 0}, "other")]
)
def test_different_cells_have_different_keys(tmp_path, settings, data):
    records = Records(tmp_path, "demo")
    assert records.key(settings, data) != records.key({"seed": 0}, "d")


def test_a_key_does_not_depend_on_the_order_of_settings(tmp_path):
    records = Records(tmp_path, "demo")
    assert records.key({"a": 1, "b": 2}, "d") == records.key({"b": 2, "a": 1}, "d")


def test_an_experiment_has_keys_of_its_own(tmp_path):
    assert Records(tmp_path, "one").key({}, "d") != Records(tmp_path, "two").key({}, "d")


def test_old_cells_are_dropped(tmp_path):
    records = Records(tmp_path, "demo")
    records.add("old", [{"n": 1}])
    records.keep(["new"])
    records.add("new", [{"n": 2}])
    assert Records(tmp_path, "demo").rows == [{"n": 2}]


@pytest.mark.parametrize("content", ["", "[]", '{"rows": []}', '{"provenance": {}, "rows": [{"n": 1}]}', '{"rows": 3}'])
def test_a_foreign_file_is_rejected_and_not_changed(tmp_path, content):
    (tmp_path / "rows.json").write_text(content, encoding="utf-8")
    with pytest.raises(HCEPError, match=r"rows\.json' was not written by an experiment .* --fresh"):
        Records(tmp_path, "demo")
    assert (tmp_path / "rows.json").read_text(encoding="utf-8") == content


def test_provenance_has_settings_versions_and_machine(tmp_path):
    records = Records(tmp_path, "demo")
    records.describe(Config(), [])
    records.write()
    found = json.loads((tmp_path / "rows.json").read_text(encoding="utf-8"))["provenance"]
    assert found["config"]["depth"] == 7
    assert found["versions"]["numpy"]
    assert "cores" in found["machine"]


def test_rows_say_which_code_measured_them(tmp_path, monkeypatch):
    first = Records(tmp_path, "demo")
    first.add("old", [{"n": 0}])
    del first.provenance["code"]
    first.add("k1", [{"n": 1}])
    first.add("k2", [{"n": 2}])
    digest = code_digest()
    assert Records(tmp_path, "demo").code == {digest: 2, "": 1}
    monkeypatch.setattr("experiments.records.code_digest", lambda: "other")
    again = Records(tmp_path, "demo")
    again.keep(["old", "k1"])
    again.describe(Config(), [])
    again.add("k2", [{"n": 3}])
    assert Records(tmp_path, "demo").code == {digest: 1, "other": 1, "": 1}


def test_comments_do_not_change_the_digest_of_the_code(tmp_path, monkeypatch):
    (tmp_path / "pursuit").mkdir()
    file = tmp_path / "pursuit" / "a.py"
    monkeypatch.setattr("hcep.__file__", str(tmp_path / "__init__.py"))
    digests = []
    for text in (
        "def f():\n    return 1\n",
        'def f():\n    """One."""\n    return 1  # why\n',
        "def f():\n    return 2\n",
    ):
        file.write_text(text, encoding="utf-8")
        digests.append(code_digest.__wrapped__())
    assert digests[0] == digests[1] != digests[2]
