"""Files in torch's two formats, written by hand, with any part of them replaced by something hostile."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile

import numpy as np

MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, 2)
PROTOCOL = pickle.dumps(1001, 2)
SYSTEM = pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}, 2)


def _number(n: int) -> bytes:
    return pickle.dumps(n, 2)[2:-1]


def _text(s: str) -> bytes:
    return b"X" + struct.pack("<I", len(s.encode())) + s.encode()


def _tuple(*numbers: int) -> bytes:
    return b"(" + b"".join(map(_number, numbers)) + b"t"


def tensor(
    key="0", n_items=6, shape=(2, 3), strides=(3, 1), offset=0, kind="torch\nFloatStorage",
    build="torch._utils\n_rebuild_tensor_v2", view=b"N", tag="storage",
) -> bytes:  # fmt: skip
    """The operations that make one tensor."""
    storage = b"(" + _text(tag) + b"c" + kind.encode() + b"\n" + _text(key) + _text("cpu") + _number(n_items)
    storage += view + b"tQ"
    call = b"(" + storage + _number(offset) + _tuple(*shape) + _tuple(*strides) + b"\x89ccollections\nOrderedDict\n)Rt"
    return b"c" + build.encode() + b"\n" + call + b"R"


def state(**tensors: bytes) -> bytes:
    """The pickle of a dict of tensors."""
    items = b"".join(_text(name) + made for name, made in tensors.items())
    return b"\x80\x02ccollections\nOrderedDict\n)R(" + items + b"u."


def legacy(
    content=None, keys=("0",), storages=None, magic=MAGIC, protocol=PROTOCOL, system=SYSTEM, end=b"", key_list=None
) -> bytes:
    """The old format."""
    content = state(w=tensor()) if content is None else content
    if storages is None:
        storages = [np.arange(6, dtype="<f4")]
    raw = b"".join(s if isinstance(s, bytes) else struct.pack("<q", s.size) + s.tobytes() for s in storages)
    return magic + protocol + system + content + (key_list or pickle.dumps(list(keys), 2)) + raw + end


def zipped(content=None, members=None, compression=zipfile.ZIP_STORED, name="archive/data.pkl", order=b"little"):
    """The new format."""
    content = state(w=tensor(view=b"")) if content is None else content
    members = {"archive/data/0": np.arange(6, dtype="<f4").tobytes()} if members is None else members
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr(name, content)
        archive.writestr("archive/byteorder", order)
        for member, data in members.items():
            archive.writestr(member, data)
    return out.getvalue()
