"""Read pickles as data: values, containers and a list of allowed names; nothing else is ever called.

Python's own unpickler imports and calls whatever a file names, and allocates what a file claims. This one refuses such
operations, and reads only bytes that are there.
"""

import pickletools
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from hcep.errors import HCEPError

#: Most operations in one pickle; a thousand tensors take about forty thousand.
MAX_OPERATIONS = 5_000_000

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set}
_VALUES = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
}  # fmt: skip
_BYTE_STRINGS = {"STRING", "BINSTRING", "SHORT_BINSTRING"}
_NOTHING = {"PROTO", "FRAME"}


class PickleError(HCEPError):
    """A pickle is damaged, or asks for something that is not allowed."""


class _Name:
    def __init__(self, name: str) -> None:
        self.name = name


def read_pickle(stream: BinaryIO, admitted: Mapping[str, Any], persistent: Callable[[Any], Any] | None = None) -> Any:
    """Read one pickle from a seekable stream, which is left behind the pickle.

    Parameters
    ----------
    admitted : a stand-in for each ``"module.name"`` that the pickle may mention, or call if the stand-in is callable
    persistent : called with a persistent id, returns its object

    Raises
    ------
    PickleError
        If a name is not allowed, an operation is not needed for data, or the pickle is damaged or endless.

    >>> import io, pickle
    >>> read_pickle(io.BytesIO(pickle.dumps({"a": [1, (2.5, None)]})), {})
    {'a': [1, (2.5, None)]}
    """
    try:
        return _Machine(admitted, persistent).run(stream)
    except PickleError:
        raise
    except Exception as error:  # a damaged pickle can make any step fail
        raise PickleError(f"the pickle is damaged ({type(error).__name__}: {str(error)[:100]})") from None


class _Machine:
    def __init__(self, admitted: Mapping[str, Any], persistent: Callable[[Any], Any] | None) -> None:
        self.admitted, self.persistent = admitted, persistent
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, stream: BinaryIO) -> Any:
        for count, (operation, argument, _) in enumerate(pickletools.genops(stream)):
            if count > MAX_OPERATIONS:
                raise PickleError(f"the pickle has more than {MAX_OPERATIONS:,} operations")
            if operation.name == "STOP":
                return self._plain(self.stack.pop())
            self._step(operation.name, argument)
        raise PickleError("the pickle does not end")

    def _step(self, name: str, argument: Any) -> None:
        push = self.stack.append
        if name in _VALUES:
            push(argument)
        elif name in _BYTE_STRINGS:
            push(argument.encode("latin-1"))
        elif name in _CONSTANTS:
            push(_CONSTANTS[name])
        elif name in _EMPTY:
            push(_EMPTY[name]())
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            self.memo[len(self.memo) if name == "MEMOIZE" else int(argument)] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            push(self.memo[int(argument)])
        elif name == "GLOBAL":
            push(self._named(argument.replace(" ", ".")))
        elif name == "STACK_GLOBAL":
            attribute, module = self.stack.pop(), self.stack.pop()
            push(self._named(f"{module}.{attribute}"))
        elif name not in _NOTHING:
            self._combine(name)

    def _combine(self, name: str) -> None:
        stack = self.stack
        if name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            n = int(name[-1])
            stack[-n:] = [tuple(map(self._plain, stack[-n:]))]
        elif name in ("TUPLE", "LIST"):
            items = self._since_mark()
            stack.append(tuple(items) if name == "TUPLE" else items)
        elif name == "DICT":
            items = self._since_mark()
            stack.append(dict(zip(items[::2], items[1::2], strict=True)))
        elif name in ("APPENDS", "APPEND"):
            items = self._since_mark() if name == "APPENDS" else [self._plain(stack.pop())]
            self._top(list).extend(items)
        elif name in ("SETITEMS", "SETITEM"):
            items = self._since_mark() if name == "SETITEMS" else list(map(self._plain, (stack.pop(-2), stack.pop())))
            self._top(dict).update(zip(items[::2], items[1::2], strict=True))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, called = stack.pop(), stack.pop()
            stack.append(self._call(called, arguments))
        elif name == "BUILD":
            stack.pop()  # a state, which no stand-in has
        elif name == "BINPERSID" and self.persistent is not None:
            stack.append(self.persistent(stack.pop()))
        else:
            raise PickleError(f"the pickle uses the operation {name}, which plain data do not need")

    def _named(self, name: str) -> _Name:
        if name not in self.admitted:
            raise PickleError(f"the pickle asks for {name[:100]}, which is not allowed; nothing was executed")
        return _Name(name)

    def _plain(self, value: Any) -> Any:
        """A value, or the stand-in for a name."""
        return self.admitted[value.name] if isinstance(value, _Name) else value

    def _call(self, called: Any, arguments: Any) -> Any:
        stand_in = self._plain(called) if isinstance(called, _Name) else None
        if not callable(stand_in) or not isinstance(arguments, tuple):
            raise PickleError("the pickle calls something that is not an allowed name")
        return stand_in(*arguments)

    def _since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = list(map(self._plain, self.stack[start:]))
        del self.stack[start:]
        return items

    def _top(self, kind: type[Any]) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise PickleError(f"the pickle fills a {type(self.stack[-1]).__name__} as if it were a {kind.__name__}")
        return self.stack[-1]
