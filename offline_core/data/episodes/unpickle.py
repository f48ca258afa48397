"""Rebuilds numpy arrays out of foreign pickles without ever running what is in them.

RLlib pickles object arrays inside episodes (msgpack-numpy does it for it) and whole columns of old recordings.
A pickle is a program; this one interpreter knows eight names and refuses every other. Behind all of them stand our own
objects, because numpy's `__setstate__` believes what it is told: a dtype that claims to hold no objects, or to be larger
than its bytes, reads memory that is not its own.
"""

from __future__ import annotations

import functools
import io
import itertools
import pickle
import pickletools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from offline_core.data.episodes import nested
from offline_core.data.episodes.nested import Nested
from offline_core.errors import UnsafeDataError

MAX_REPEATED_BYTES = 2**30
"""A pickle can name one array or text many times; what grows beyond this in that way is refused."""
MIN_PARTS, PARTS_PER_BYTE = 100_000, 8
"""Parts that a pickled value of plain containers may unfold to: so many, or so many times its bytes."""


def load_array(data: bytes) -> np.ndarray:
    """The numeric (or text) array that `data` pickles.

    Object arrays are accepted when their items are plain numbers or equally shaped numeric arrays, and come back numeric.

    Raises:
        UnsafeDataError: the pickle names anything but numpy's array constructors, is broken, or holds no such array.
    """
    return _load(data, _array)  # type: ignore[no-any-return]


def load_nested(data: bytes) -> Nested:
    """The array that `data` pickles, see `load_array`, or the dict or tuple of arrays, as deep as it goes.

    Raises:
        UnsafeDataError: there is anything else in it.
    """

    def read(value: Any) -> Nested:
        tree = _nested(value, set())
        if sum(array.nbytes for array in nested.leaves(tree)) > MAX_REPEATED_BYTES:
            raise UnsafeDataError(f"A pickled value unfolds to more than {MAX_REPEATED_BYTES} bytes; refused.")
        return tree

    return _load(data, read)


def load_plain(data: bytes) -> Any:
    """What `data` pickles of dicts, lists, numbers, text and arrays; tuples and arrays of objects are lists.

    Raises:
        UnsafeDataError: there is anything else in it, or more of it than its bytes can stand for.
    """
    left = itertools.repeat(None, max(MIN_PARTS, PARTS_PER_BYTE * len(data)))
    size = 0

    def read(value: Any) -> Any:
        nonlocal size
        if next(left, left) is left:
            raise UnsafeDataError("A pickled value unfolds to far more parts than it has bytes; refused.")
        if isinstance(value, _Array) and value.objects is not None:
            if len(value.shape) != 1:
                raise UnsafeDataError(f"A pickled array of objects has shape {value.shape} and is no list; refused.")
            value = value.objects
        if isinstance(value, dict):
            if not all(isinstance(key, str | int) for key in value):
                raise UnsafeDataError("A pickled dict has keys that are neither text nor whole numbers; refused.")
            return {read(key): read(child) for key, child in value.items()}
        if isinstance(value, list | tuple):
            return [read(child) for child in value]
        if value is not None and not isinstance(value, bool | int | float | str | bytes | np.generic):
            value = _plain(value)
        size += _bytes_of(value)
        if size > MAX_REPEATED_BYTES:
            raise UnsafeDataError(f"A pickled value unfolds to more than {MAX_REPEATED_BYTES} bytes; refused.")
        return value

    return _load(data, read)


def _bytes_of(value: Any) -> int:
    """Of what one copy takes; single numbers are counted as parts."""
    if isinstance(value, str | bytes):
        return len(value)
    return int(value.nbytes) if isinstance(value, np.ndarray | np.generic) else 0


def load_alike(pickles: Sequence[bytes]) -> np.ndarray | None:
    """Return N arrays as one, (N, …), if their pickles differ only in the numbers, as those of a column do; else None.

    Only the first is taken apart: the others are compared with it, and their numbers copied.
    """
    first = load_array(pickles[0]) if pickles else np.empty(0)
    if (span := numbers_in(pickles[0], first.nbytes) if first.nbytes else None) is None:
        return None
    head, tail = pickles[0][: span.start], pickles[0][span.stop :]
    if any(len(data) != len(pickles[0]) or not (data.startswith(head) and data.endswith(tail)) for data in pickles):
        return None
    probe = np.random.default_rng(0).bytes(first.nbytes)  # whose order would tell if it were not that of the numbers
    if load_array(head + probe + tail).tobytes() != probe:
        return None
    numbers = bytearray().join([data[span] for data in pickles])
    return np.frombuffer(numbers, first.dtype).reshape(len(pickles), *first.shape)


def numbers_in(data: bytes, size: int) -> slice | None:
    """Return the position of a pickle's only bytes of that size; None if there are none or several."""
    orders = [*pickletools.genops(data)]
    ends = [*(begin or 0 for _, _, begin in orders[1:]), len(data)]
    spans = [
        slice(end - size, end)
        for (_, value, _), end in zip(orders, ends, strict=True)
        if isinstance(value, bytes | bytearray) and len(value) == size
    ]
    return spans[0] if len(spans) == 1 else None


def _load(data: bytes, read: Callable[[Any], Any]) -> Any:
    try:
        return read(_unpickler(data).load())
    except UnsafeDataError:
        raise
    except Exception as error:  # a hostile or broken pickle may raise anything
        raise UnsafeDataError(f"A pickled value could not be rebuilt as a numpy array: {error}.") from error


def _array(value: Any) -> np.ndarray:
    return _joined(value, (len(value),)) if isinstance(value, list | tuple) else _plain(value)


def _nested(value: Any, seen: set[int]) -> Nested:
    if isinstance(value, dict | tuple | list):
        if id(value) in seen:  # a few bytes could stand for more parts than can be walked
            raise UnsafeDataError("A pickled value holds one and the same dict, tuple or list several times; refused.")
        seen.add(id(value))
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise UnsafeDataError("A pickled dict has keys that are not text; refused.")
        return {key: _nested(child, seen) for key, child in value.items()}
    return tuple(_nested(child, seen) for child in value) if isinstance(value, tuple) else _array(value)


def _plain(value: Any) -> np.ndarray:
    if isinstance(value, _Array):
        return value.values
    if isinstance(value, np.ndarray | np.generic | int | float | str):
        array = np.asarray(value)
        if not array.dtype.hasobject:
            return array
    raise UnsafeDataError(f"A pickled value holds {type(value).__name__} objects and not numbers; refused.")


def _joined(items: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    arrays = [_plain(item) for item in items]
    if sum(array.nbytes for array in arrays) > MAX_REPEATED_BYTES:
        raise UnsafeDataError(f"A pickled array unfolds to more than {MAX_REPEATED_BYTES} bytes; refused.")
    joined = np.array(arrays)
    return joined.reshape(*shape, *joined.shape[1:])


class _Dtype:
    """Stands for a dtype; of the state that follows its name in a pickle, only the byte order is heeded."""

    def __init__(self, name: str, align: bool = False, copy: bool = False) -> None:
        self.dtype = np.dtype(name)
        if self.dtype.kind not in "biufcSUO":
            raise UnsafeDataError(f"A pickled array has dtype {self.dtype}, neither numbers nor text; refused.")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])

    def read(self, buffer: Any) -> np.ndarray:
        return np.frombuffer(buffer, self.dtype) if len(buffer) else np.empty(0, self.dtype)


class _Array:
    """Stands for an empty array until its state says what is in it: bytes, or a list of objects."""

    objects: Any = None
    """Of an array of objects, before they are joined to numbers."""
    shape: tuple[int, ...] = ()

    def __init__(self, subtype: Any, shape: tuple[int, ...], typecode: bytes) -> None:
        if subtype is not _NDARRAY:
            raise UnsafeDataError("A pickled array is not a plain numpy array; refused.")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, is_fortran, data = state
        if dtype.dtype.hasobject:
            self.objects, self.shape = data, shape
        else:
            self.values = dtype.read(data).reshape(shape, order="F" if is_fortran else "C")

    @functools.cached_property
    def values(self) -> np.ndarray:
        return _joined(self.objects, self.shape)


class _Function:
    """A function that can only be called: of a plain one, a pickle could change the defaults."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise UnsafeDataError("A pickled value wants to change a function; refused.")


def _frombuffer(buffer: Any, dtype: _Dtype, shape: Any, order: str, axis_order: Any = None) -> np.ndarray:
    if order == "K":  # numpy 2.3 and later: the bytes lie in the order of these axes
        return dtype.read(buffer).reshape(shape).transpose(axis_order)
    return dtype.read(buffer).reshape(shape, order=order)  # type: ignore[call-overload, no-any-return]


def _scalar(dtype: _Dtype, data: bytes) -> Any:
    return dtype.read(data)[0]


def _encode(text: str, encoding: str) -> bytes:
    return text.encode("latin1" if encoding == "latin1" else "ascii")


_NDARRAY = "numpy.ndarray"

_ALLOWED = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _Function(_encode),
    ("collections", "OrderedDict"): _Function(dict),  # observations of Dict spaces before gymnasium 1.0
    ("__builtin__", "bytes"): _Function(lambda: b""),  # an empty array, in the protocol of `ndarray.dumps`
} | {
    (f"numpy.{core}.{module}", name): value
    for core in ("core", "_core")
    for module, name, value in (
        ("multiarray", "_reconstruct", _Array),
        ("multiarray", "scalar", _Function(_scalar)),
        ("numeric", "_frombuffer", _Function(_frombuffer)),
    )
}


class _Names:
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise UnsafeDataError(
                f"A pickled value wants to call {module}.{name}; only plain numpy arrays are read. "
                "If you trust the source, convert the file with the program that wrote it."
            ) from None

    def persistent_load(self, pid: Any) -> Any:
        raise UnsafeDataError("A pickled value refers to something outside itself; refused.")


class _FastUnpickler(_Names, pickle.Unpickler):
    """In C, with an array for a memo: storing at index two billion takes 32 GiB."""


class _PatientUnpickler(_Names, pickle._Unpickler):
    """In Python, with a dict for a memo."""


_ARRAY_HEADER = re.compile(
    rb"\x80\x05\x95.{8}\x8c(?:\x12numpy\.core|\x13numpy\._core)\.numeric\x94\x8c\x0b_frombuffer\x94\x93", re.DOTALL
)
_LARGE_INDEX = re.compile(rb"r..(?!\0\0)|p[\s\d+_-]{6}", re.DOTALL)
"""What may be an order to store at an index with more than two bytes, or five digits."""


def _unpickler(data: bytes) -> _FastUnpickler | _PatientUnpickler:
    header = _ARRAY_HEADER.match(data)  # of nearly all arrays; the names in it only look like orders
    careful = _LARGE_INDEX.search(data, header.end() if header else 0)
    return (_PatientUnpickler if careful else _FastUnpickler)(io.BytesIO(data))
