import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError

import pytest

from hcep.embeddings.encoders.hub import ALLOW_DOWNLOAD, HubUnreachableError, loading, without_network
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


# -- a file never causes a download ----------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch):
    """A hub without models that counts its requests."""
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET  # noqa: N815 # a name of the library

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield requests, address
        server.shutdown()


def test_no_connection_is_made_while_the_network_is_off(hub):
    pytest.importorskip("huggingface_hub", reason="comes with every encoder that is on a hub")
    requests, address = hub
    with pytest.raises(HubUnreachableError), without_network(), loading("timm:evil", local=False):
        urllib.request.urlopen(address)
    assert requests == []
    with pytest.raises(HTTPError, match="404"):
        urllib.request.urlopen(address)  # the network is on again
    assert requests == ["/"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "name"),
    [
        ("transformers", "transformers:attacker/evil"),
        ("timm", "timm:hf-hub:attacker/evil"),
        ("open_clip", "open_clip:hf-hub:attacker/evil"),
        ("open_clip", "open_clip:ViT-B-32/openai"),  # not on the hub: a plain address
    ],
)
def test_a_model_that_names_an_encoder_of_a_hub_causes_no_download(hub, monkeypatch, tmp_path, library, name):
    pytest.importorskip(library, reason="an encoder of its own extra", exc_type=Exception)
    requests, _ = hub
    for variable in ("HF_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    match = "names the encoder .* not on this machine; if you trust it, pass --allow-download"
    with pytest.raises(HCEPError, match=match):
        load_model_encoder(EncoderRecord(name), "model/")
    assert requests == []


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [None, "transformers:attacker/evil"])
def test_a_download_needs_a_word_of_the_user(hub, monkeypatch, wanted):
    pytest.importorskip("transformers", reason="an encoder of its own extra")
    requests, _ = hub
    monkeypatch.setenv(ALLOW_DOWNLOAD, "" if wanted else "1")
    with pytest.raises(HCEPError, match=r"the hub has no such model|cannot be reached|could not be loaded"):
        load_model_encoder(EncoderRecord("transformers:attacker/evil"), "model/", wanted)
    assert requests
