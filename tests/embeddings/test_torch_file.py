import pickle
import struct
import zipfile

import numpy as np
import pytest

from hcep.embeddings.pickles import PickleError
from hcep.embeddings.torch_file import read_torch_file
from tests.embeddings.torch_files import legacy, state, tensor, zipped

WHOLE = np.arange(6, dtype=np.float32).reshape(2, 3)


def read(tmp_path, data):
    path = tmp_path / "file.pth"
    path.write_bytes(data)
    return read_torch_file(path)


@pytest.mark.parametrize("data", [legacy(), zipped()], ids=["old", "new"])
def test_both_formats(tmp_path, data):
    assert np.array_equal(read(tmp_path, data)["w"], WHOLE)


def test_views_of_a_storage(tmp_path):
    made = state(t=tensor(shape=(3, 2), strides=(1, 3)), part=tensor(shape=(2,), strides=(2,), offset=1))
    found = read(tmp_path, legacy(made))
    assert np.array_equal(found["t"], WHOLE.T)
    assert found["part"].tolist() == [1.0, 3.0]


def test_files_of_torch_are_read(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    value = {
        "a": torch.randn(4, 5).T,
        "b": [torch.arange(3), (torch.tensor(2.0), None, "x")],
        "h": torch.randn(3).bfloat16(),
        "p": torch.nn.Parameter(torch.ones(2)),
        "flags": torch.tensor([True, False]),
    }
    for new in (True, False):
        torch.save(value, tmp_path / "x.pt", _use_new_zipfile_serialization=new)
        found = read_torch_file(tmp_path / "x.pt")
        assert np.array_equal(found["a"], value["a"].numpy())
        assert found["b"][0].tolist() == [0, 1, 2]
        assert found["b"][1] == (2.0, None, "x")
        assert np.array_equal(found["h"], value["h"].float().numpy())
        assert found["p"].tolist() == [1.0, 1.0]
        assert found["flags"].tolist() == [True, False]


RUN = b"\x80\x02cos\nsystem\n(X\x10\x00\x00\x00touch was_opened" + b"tR."
CALL_INSIDE = state(w=b"cos\nsystem\n(X\x10\x00\x00\x00touch was_openedtR")

HOSTILE = {
    "empty": (b"", "damaged"),
    "text": (b"hello, world", "damaged"),
    "code as the magic": (legacy(magic=RUN), "os.system, which is not allowed"),
    "code as the protocol": (legacy(protocol=RUN), "os.system, which is not allowed"),
    "code as the system": (legacy(system=RUN), "os.system, which is not allowed"),
    "code as the content": (legacy(RUN), "os.system, which is not allowed"),
    "code in a dict": (legacy(CALL_INSIDE), "os.system, which is not allowed"),
    "code as the keys": (legacy(key_list=RUN), "os.system, which is not allowed"),
    "code as a storage type": (legacy(state(w=tensor(kind="os\nsystem"))), "os.system, which is not allowed"),
    "code as the builder": (legacy(state(w=tensor(build="builtins\neval"))), "builtins.eval, which is not allowed"),
    "a builder of modules": (legacy(state(w=tensor(build="torch.nn\nLinear"))), "torch.nn.Linear, which is not"),
    "code in an archive": (zipped(RUN), "os.system, which is not allowed"),
    "another magic": (legacy(magic=pickle.dumps(7, 2)), "does not start like a file of torch"),
    "another protocol": (legacy(protocol=pickle.dumps(7, 2)), "does not start like a file of torch"),
    "big-endian": (legacy(system=pickle.dumps({"little_endian": False}, 2)), "little-endian"),
    "big-endian archive": (zipped(order=b"big"), "little-endian"),
    "no storage": (legacy(storages=[]), "truncated: 8 bytes are expected, 0 are left"),
    "half a storage": (legacy()[:-5], "truncated: 24 bytes are expected, 19 are left"),
    "half a pickle": (legacy()[:200], "damaged"),
    "too much": (legacy(end=b"x"), "something follows"),
    "a storage that says more": (legacy(storages=[struct.pack("<q", 2**60)]), "items where its tensors say 6"),
    "a storage that says less": (legacy(storages=[struct.pack("<q", -1)]), "has -1 items"),
    "a huge storage": (
        legacy(state(w=tensor(n_items=2**50)), storages=[struct.pack("<q", 2**50)]),
        "truncated: 4,503,599,627,370,496 bytes are expected",
    ),
    "a huge tensor": (legacy(state(w=tensor(shape=(2**20, 2**20), strides=(0, 0)))), "reaches beyond its 6 items"),
    "a tensor beyond its storage": (legacy(state(w=tensor(offset=1))), "reaches beyond its 6 items"),
    "a negative offset": (legacy(state(w=tensor(offset=-1))), "not counts"),
    "a negative stride": (legacy(state(w=tensor(strides=(-3, 1)))), "not counts"),
    "strides of another length": (legacy(state(w=tensor(strides=(1,)))), "not described in torch's way"),
    "seventeen axes": (legacy(state(w=tensor(shape=(1,) * 17, strides=(1,) * 17))), "not described in torch's way"),
    "a negative length": (legacy(state(w=tensor(n_items=-6))), "length of -6"),
    "a view of a storage": (legacy(state(w=tensor(view=b"K\x01"))), "views of storages"),
    "no storage at all": (legacy(state(w=tensor(tag="module"))), "not the storage of a tensor"),
    "one key, two storages": (legacy(state(a=tensor(), b=tensor(kind="torch\nLongStorage"))), "described in two ways"),
    "keys of others": (legacy(keys=("1",)), "does not match its tensors"),
    "keys that are no list": (legacy(key_list=pickle.dumps(3, 2)), "does not match its tensors"),
    "a compressed archive": (zipped(compression=zipfile.ZIP_DEFLATED), "is compressed, which torch never does"),
    "an archive without a pickle": (zipped(name="archive/other"), "must contain exactly one data.pkl"),
    "an archive without a storage": (zipped(members={}), "There is no item named|is missing"),
    "an archive with half a storage": (
        zipped(members={"archive/data/0": b"xx"}),
        "has 2 bytes, not the size of 6 items",
    ),
    "bytes": (legacy(b"\x80\x03C\x01a."), "holds a bytes|does not match"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_and_nothing_runs(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    data, message = HOSTILE[case]
    with pytest.raises(PickleError, match=message):
        read(tmp_path, data)
    assert [path.name for path in tmp_path.iterdir()] == ["file.pth"]


def test_containers_that_contain_each_other_are_made_once(tmp_path):
    doubled = b"]q\x00" + b"".join(
        b"]" + bytes([ord("q"), i]) + b"(" + bytes([ord("h"), i - 1]) * 9 + b"e" for i in range(1, 25)
    )
    found = read(tmp_path, legacy(b"\x80\x02" + doubled + b".", keys=(), storages=[]))
    assert len(found) == 9


def test_endless_nesting_is_refused(tmp_path):
    with pytest.raises(PickleError, match="more than 32 deep"):
        read(tmp_path, legacy(b"\x80\x02]q\x00h\x00a.", keys=(), storages=[]))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(PickleError, match="No such file"):
        read_torch_file(tmp_path / "none.pth")
