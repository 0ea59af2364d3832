import collections
import io
import os
import pickle

import pytest

from hcep.embeddings.pickles import PickleError, read_pickle


class Calls:
    def __reduce__(self):
        return os.system, ("touch was_executed",)


def read(data, admitted=None, persistent=None):
    return read_pickle(io.BytesIO(data), admitted or {}, persistent)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_comes_back_as_it_was(protocol):
    value = {"a": [1, -(2**70), 2.5, None, True], "b": ("x", ("y",), {"z": []}), "c": [[], (1, 2, 3, 4)]}
    assert read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_only_allowed_names_are_called(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PickleError, match=r"asks for .*system, which is not allowed; nothing was executed"):
        read(pickle.dumps({"a": Calls()}, protocol))
    assert not list(tmp_path.iterdir())


def test_the_stand_in_of_an_allowed_name_is_called():
    data = pickle.dumps(collections.OrderedDict(a=1), 2)
    assert read(data, {"collections.OrderedDict": lambda *_: {}}) == {"a": 1}


def test_a_name_that_is_not_called_becomes_its_stand_in():
    assert read(b"cos\nsystem\n.", {"os.system": "harmless"}) == "harmless"


def test_a_state_is_left_out():
    assert read(b"cos\nsystem\n(tR}S'a'\nI1\nsb.", {"os.system": dict}) == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "damaged"),
        (b"\x80\x02", "damaged"),
        (b"I1\n", "damaged"),
        (b"\x80\x02X\xff\xff\xff\x7fabc.", "damaged"),
        (b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.", "damaged"),
        (b"h\x05.", "damaged"),
        (b"I1\nI2\na.", "fills a int as if it were a list"),
        (b"I1\n)R.", "not an allowed name"),
        (b"(cos\nsystem\nS'x'\no.", "not allowed"),
        (b"(S'x'\nios\nsystem\n.", "operation INST"),
        (b"\x82\x01.", "operation EXT1"),
        (b"Pkey\n.", "operation PERSID"),
        (b"I1\nQ.", "operation BINPERSID"),
        (b"\x80\x05\x97.", "operation NEXT_BUFFER"),
    ],
)
def test_dangerous_and_damaged_pickles_are_refused(data, message):
    with pytest.raises(PickleError, match=message):
        read(data)


def test_an_allowed_value_cannot_be_called():
    with pytest.raises(PickleError, match="not an allowed name"):
        read(b"cos\nsystem\n(tR.", {"os.system": "harmless"})


def test_a_large_memo_index_allocates_no_memory():
    assert read(b"\x80\x02K\x01r\xff\xff\xff\x7f.") == 1


def test_the_stream_stands_behind_what_was_read():
    stream = io.BytesIO(pickle.dumps(1) + pickle.dumps("two") + b"rest")
    assert (read_pickle(stream, {}), read_pickle(stream, {}), stream.read()) == (1, "two", b"rest")
