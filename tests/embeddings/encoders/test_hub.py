"""A hub that answers, one that does not, and what is said about it."""

import logging
import socket
import threading
import urllib.error
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from hcep.embeddings.encoders import HubUnreachableError, hub as hub_module
from hcep.embeddings.encoders.hub import hub_answers, loading, quiet_root_logger
from hcep.errors import HCEPError, MissingExtraError


class Answer(BaseHTTPRequestHandler):
    status = 200

    def do_HEAD(self):
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *args):
        pass


class Refusal(Answer):
    status = 403


@pytest.fixture(params=[Answer, Refusal])
def hub(request, monkeypatch):
    server = HTTPServer(("127.0.0.1", 0), request.param)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield server
    server.shutdown()
    server.server_close()


def named(name):
    """An error class of a library that is not installed here."""
    return type(name, (Exception,), {})


def caused(by):
    """An error that wraps another, as the libraries do."""
    error = RuntimeError("Failed to download weights\nand a second line")
    error.__context__ = by
    return error


@pytest.fixture
def answering(monkeypatch):
    monkeypatch.setattr(hub_module, "hub_answers", lambda: True)


def test_a_hub_that_sends_an_error_answers(hub):
    assert hub_answers()


def test_an_unreachable_hub_does_not_answer(no_hub):
    assert not hub_answers()


def test_a_hub_with_an_impossible_address(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "not an address")
    assert not hub_answers()


def test_a_silent_hub_does_not_answer(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert not hub_answers(seconds=0.2)


NETWORK = [
    ConnectionRefusedError("refused"),
    TimeoutError(),
    socket.gaierror(-2, "Name or service not known"),
    urllib.error.URLError("no route"),
    named("ConnectError")("httpx"),
    named("LocalEntryNotFoundError")("huggingface_hub"),
]


@pytest.mark.parametrize("error", NETWORK, ids=lambda e: type(e).__name__)
def test_network_errors_name_the_offline_choices(answering, error):
    message = "^timm:x is not on this machine, and the hub cannot be reached"
    with pytest.raises(HubUnreachableError, match=message) as found, loading("timm:x", local=False):
        raise caused(by=error)
    assert "'efficientnet-lite2'" in str(found.value)
    assert "\n" not in str(found.value)


ABSENT = [named("RepositoryNotFoundError")("404"), named("HFValidationError")("bad name")]


@pytest.mark.parametrize("error", ABSENT, ids=lambda e: type(e).__name__)
def test_a_model_that_is_missing_on_the_hub(answering, error):
    with (
        pytest.raises(HCEPError, match=r"^timm:x: the hub has no such model or denies access"),
        loading("timm:x", local=False),
    ):
        raise caused(by=error)


@pytest.mark.parametrize("local", [True, False])
def test_other_errors_in_one_line(answering, local):
    with (
        pytest.raises(HCEPError, match=r"^timm:x could not be loaded: Failed to download weights$"),
        loading("timm:x", local=local),
    ):
        raise caused(by=urllib.error.HTTPError("address", 500, "oops", {}, None))


def test_an_error_without_a_message(answering):
    with pytest.raises(HCEPError, match=r"^timm:x could not be loaded: KeyError$"), loading("timm:x", local=True):
        raise KeyError


@pytest.mark.parametrize("error", [HCEPError("mine"), MissingExtraError("mine")])
def test_errors_of_our_own_pass(error):
    with pytest.raises(type(error), match=r"^mine$"), loading("timm:x", local=True):
        raise error


def test_sockets_have_a_time_limit_meanwhile():
    before = socket.getdefaulttimeout()
    with loading("timm:x", local=True):
        assert socket.getdefaulttimeout() == hub_module.SECONDS_OF_SILENCE
    assert socket.getdefaulttimeout() == before


@pytest.mark.parametrize(("answers", "offline"), [(True, False), (False, True)])
def test_the_library_works_offline_where_the_hub_does_not_answer(monkeypatch, answers, offline):
    constants = pytest.importorskip("huggingface_hub.constants", reason="huggingface_hub is not installed")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub_module, "hub_answers", lambda: answers)
    with loading("timm:x", local=False):
        assert constants.HF_HUB_OFFLINE is offline
    assert constants.HF_HUB_OFFLINE is False


@pytest.mark.parametrize(("context", "n_records"), [(quiet_root_logger(), 1), (nullcontext(), 2)])
def test_messages_on_the_root_logger_are_dropped(caplog, context, n_records):
    with context:
        logging.getLogger().error("Failed to download weights")
        logging.getLogger("hcep").error("kept")
    logging.getLogger("hcep").info("not shown")
    assert len(caplog.records) == n_records
