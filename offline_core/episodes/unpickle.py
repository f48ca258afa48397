"""Rebuilds numpy arrays out of foreign pickles without ever running what is in them.

RLlib pickles object arrays inside episodes (msgpack-numpy does it for it) and whole columns of old recordings.
A pickle is a program; this one interpreter knows six functions, all of them harmless, and refuses every other name.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from offline_core.errors import UnsafeDataError


def load_array(data: bytes) -> np.ndarray:
    """The numeric (or text) array that `data` pickles.

    Object arrays are accepted when their items are plain numbers or equally shaped numeric arrays, and come back numeric.

    Raises:
        UnsafeDataError: the pickle names anything but numpy's array constructors, is broken, or holds no such array.
    """
    try:
        value = _ArrayUnpickler(io.BytesIO(data)).load()
    except UnsafeDataError:
        raise
    except Exception as error:  # a hostile or broken pickle may raise anything
        raise UnsafeDataError(f"A pickled value could not be rebuilt as a numpy array: {error}.") from error
    return _plain(value)


def _plain(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray | np.generic | int | float | bool | list):
        try:
            array = np.asarray(value)
            if array.dtype.hasobject:
                array = np.array([np.asarray(item) for item in array.ravel().tolist()])
        except ValueError:
            array = np.empty(0, object)
        if array.dtype.kind in "biufcSU":
            return array
    raise UnsafeDataError(f"A pickled value holds {type(value).__name__} objects and not numbers; refused.")


def _reconstruct(subtype: type, shape: tuple[int, ...], typecode: bytes) -> np.ndarray:
    if subtype is not np.ndarray or shape != (0,):
        raise UnsafeDataError("A pickled array is not a plain numpy array; refused.")
    return np.ndarray(shape, typecode)


def _frombuffer(buffer: Any, dtype: np.dtype, shape: tuple[int, ...], order: str) -> np.ndarray:
    return np.frombuffer(buffer, dtype=dtype).reshape(shape, order=order)  # type: ignore[call-overload, no-any-return]


def _scalar(dtype: np.dtype, data: bytes) -> Any:
    return np.frombuffer(data, dtype=dtype, count=1)[0]


def _encode(text: str, encoding: str) -> bytes:
    return text.encode("latin1" if encoding == "latin1" else "ascii")


_ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
} | {
    (f"numpy.{core}.{module}", name): function
    for core in ("core", "_core")
    for module, name, function in (
        ("multiarray", "_reconstruct", _reconstruct),
        ("multiarray", "scalar", _scalar),
        ("numeric", "_frombuffer", _frombuffer),
    )
}


class _ArrayUnpickler(pickle.Unpickler):
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
