"""Read pickles as data: values, containers and a list of allowed names; nothing else is ever called.

Python's own unpickler imports and calls whatever a file names, and allocates what a file claims. Its version in Python
has a table of operations, in which only those of plain data are left here.
"""

import pickle
import pickletools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO

from hcep.errors import HCEPError

_ALLOWED = {
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT",
    "EMPTY_SET", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE",
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET", "GLOBAL",
    "STACK_GLOBAL", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "DICT", "APPEND", "APPENDS", "SETITEM", "SETITEMS",
}  # fmt: skip


class PickleError(HCEPError):
    """A pickle is damaged, or asks for something that is not allowed."""


def read_pickle(stream: BinaryIO, admitted: Mapping[str, Any], persistent: Callable[[Any], Any] | None = None) -> Any:
    """Read one pickle from a seekable stream, which is left behind the pickle.

    Parameters
    ----------
    admitted : a stand-in for each ``"module.name"`` that the pickle may mention, or call if the stand-in is callable
    persistent : called with a persistent id, returns its object

    Raises
    ------
    PickleError
        If a name is not allowed, an operation is not needed for data, or the pickle is damaged.

    >>> import io, pickle
    >>> read_pickle(io.BytesIO(pickle.dumps({"a": [1, (2.5, None)]})), {})
    {'a': [1, (2.5, None)]}
    """
    try:
        return _Reader(stream, admitted, persistent).load()
    except PickleError:
        raise
    except Exception as error:  # a damaged pickle can make any step fail
        raise PickleError(f"the pickle is damaged ({type(error).__name__}: {str(error)[:100]})") from None


def _refuse(name: str, _: object) -> None:
    raise PickleError(f"the pickle uses the operation {name}, which plain data do not need")


_PythonUnpickler: Any = vars(pickle)["_Unpickler"]  # it has no types


class _Reader(_PythonUnpickler):  # type: ignore[misc]
    def __init__(self, stream: BinaryIO, admitted: Mapping[str, Any], persistent: Callable[[Any], Any] | None) -> None:
        super().__init__(stream, encoding="bytes")
        self.admitted, self.persistent = admitted, persistent

    def find_class(self, module: str, name: str) -> Any:
        if (full := f"{module}.{name}") not in self.admitted:
            raise PickleError(f"the pickle asks for {full[:100]}, which is not allowed; nothing was executed")
        return self.admitted[full]

    def persistent_load(self, pid: Any) -> Any:
        return _refuse("BINPERSID", self) if self.persistent is None else self.persistent(pid)

    def call(self) -> None:
        """Call a stand-in; only names that were looked up can be called."""
        arguments, called = self.stack.pop(), self.stack.pop()
        if not (callable(called) and isinstance(arguments, tuple)):
            raise PickleError("the pickle calls something that is not an allowed name")
        self.stack.append(called(*arguments))

    def skip_state(self) -> None:
        self.stack.pop()  # no stand-in has a state

    dispatch = {
        ord(code.code): _PythonUnpickler.dispatch[ord(code.code)]
        if code.name in _ALLOWED | {"BINPERSID"}
        else partial(_refuse, code.name)
        for code in pickletools.opcodes
    } | {pickle.REDUCE[0]: call, pickle.NEWOBJ[0]: call, pickle.BUILD[0]: skip_state}
