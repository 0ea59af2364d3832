import sys

import pytest

from hcep.embeddings.protocol import EncoderRecord
from hcep.errors import HCEPError
from hcep.models.model_encoder import load_model_encoder

CODE = """
import pathlib
pathlib.Path("was_imported").touch()
def encode(batch):
    return batch.mean(axis=(2, 3))
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A module within reach, which leaves a file behind when it is imported."""
    (tmp_path / "planted_encoder.py").write_text(CODE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("planted_encoder", None)


def test_a_model_cannot_cause_an_import(planted):
    record = EncoderRecord("function:planted_encoder:encode")
    with pytest.raises(HCEPError, match="which is code; to run it, pass --encoder function:planted_encoder:encode"):
        load_model_encoder(record, "model/")
    assert not (planted / "was_imported").exists()


def test_the_user_may_name_an_encoder_that_is_code(planted):
    record = EncoderRecord("function:planted_encoder:encode")
    encoder = load_model_encoder(record, "model/", "function:planted_encoder:encode")
    assert encoder.n_dims == 3
    assert (planted / "was_imported").exists()
