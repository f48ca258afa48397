"""`load_array` and `load_nested`: every numpy array that numpy pickled, and not one thing that a pickle could do besides."""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from offline_core.data.episodes import nested, unpickle
from offline_core.data.episodes.unpickle import load_alike, load_array, load_nested, load_plain
from offline_core.errors import UnsafeDataError
from tests.cases import examples

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
ARRAY = pickle.dumps(np.float32([1, 2]), 5)


# ---- Arrays ----------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(200))
@given(
    hnp.arrays(
        st.sampled_from(["?", "i1", "<u2", ">i4", "<i8", "<f2", ">f4", "<f8", "<c16", "<U3", "S2"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    ),
    st.sampled_from(PROTOCOLS),
)
def test_every_array_comes_back(array: np.ndarray, protocol: int) -> None:
    again = load_array(pickle.dumps(array, protocol))
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()


@settings(max_examples=examples(200))
@given(
    hnp.arrays(
        st.sampled_from(["?", "i1", "<u2", ">i4", "<i8", ">f4", "<f8", "<c16", "S2"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3).map(lambda shape: (3, *shape)),
    ),
    st.sampled_from("CF"),
    st.sampled_from(PROTOCOLS),
)
def test_arrays_that_are_pickled_alike_come_back_as_one(arrays: np.ndarray, order: str, protocol: int) -> None:
    pickles = [pickle.dumps(np.asarray(array, order=order), protocol) for array in arrays]
    if (found := load_alike(pickles)) is not None:
        each = [load_array(data) for data in pickles]
        assert (found.dtype, found.shape) == (each[0].dtype, arrays.shape)
        assert found.tobytes() == b"".join(array.tobytes() for array in each)


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("shape", [(4,), (2, 3), (84, 84, 3)])
def test_numbers_of_a_column_are_pickled_alike(shape: tuple[int, ...], protocol: int) -> None:
    arrays = np.random.default_rng(0).normal(size=(5, *shape)).astype(np.float32)
    assert load_alike([pickle.dumps(array, protocol) for array in arrays]).tobytes() == arrays.tobytes()


def test_arrays_that_are_pickled_otherwise_are_not_taken_for_alike() -> None:
    def alike(*arrays: np.ndarray) -> bool:
        return load_alike([pickle.dumps(array, 5) for array in arrays]) is not None

    zeros = np.zeros((2, 3), np.float32)
    assert alike(zeros, zeros + 1)
    assert not alike(zeros, zeros.astype(np.int32)) and not alike(zeros, zeros.reshape(3, 2)) and not alike(zeros, zeros[:1])
    assert not alike(np.asfortranarray(zeros), np.asfortranarray(zeros + 1)), "zeros would read the same either way"
    assert load_alike([]) is None
    laughs = pickle.dumps(zeros, 5)[:-1] + b"0cos\nsystem\n."
    with pytest.raises(UnsafeDataError):
        load_alike([laughs, laughs])
    assert load_alike([pickle.dumps(zeros, 5), laughs]) is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("axes", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1)])
def test_arrays_read_as_they_did_however_they_lie_in_memory(axes: tuple[int, ...], protocol: int) -> None:
    array = np.arange(24).reshape(2, 3, 4).transpose(axes)
    assert load_array(pickle.dumps(array, protocol)).tolist() == array.tolist()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "value", [np.float32(1.5), np.int64(-3), np.bool_(True), 7, 1.5, True, [1, 2.5, np.float32(3)]], ids=repr
)
def test_plain_numbers_become_arrays(value: Any, protocol: int) -> None:
    assert load_array(pickle.dumps(value, protocol)).tolist() == np.asarray(value).tolist()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_object_arrays_of_numbers_become_numeric(order: Any, protocol: int) -> None:
    numbers = np.array([[1, 2.5, True], [3, np.float32(4), 5]], object, order=order)
    again = load_array(pickle.dumps(numbers, protocol))
    assert again.dtype == np.float64
    assert again.tolist() == [[1, 2.5, 1], [3, 4, 5]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_object_arrays_of_equal_arrays_become_one_array(protocol: int) -> None:
    rows = np.empty((2, 2), object)
    for i in range(4):
        rows.flat[i] = np.arange(3, dtype=np.int16) + i
    again = load_array(pickle.dumps(rows, protocol))
    assert again.dtype == np.int16
    assert again.tolist() == [[[0, 1, 2], [1, 2, 3]], [[2, 3, 4], [3, 4, 5]]]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("value", [np.float32([1, 2]), np.array([1, 2], object), np.float32(1)], ids=repr)
def test_what_numpy_1_pickled_is_read(value: Any, protocol: int) -> None:
    """It said numpy.core where numpy 2 says numpy._core; that is one letter less in the counts before it."""
    data = pickle.dumps(value, protocol)
    for module in (b"numpy._core.multiarray", b"numpy._core.numeric"):
        old = module.replace(b"_core", b"core")
        data = data.replace(b"c" + module, b"c" + old).replace(bytes([len(module)]) + module, bytes([len(old)]) + old)
    if protocol >= 4:
        data = data[:3] + struct.pack("<Q", len(data) - 11) + data[11:]
    assert b"numpy.core" in data
    assert b"_core" not in data
    assert load_array(data).tolist() == value.tolist()


# ---- Programs --------------------------------------------------------------------------------------------------------


class Call:
    """Pickles as a call of `function`, its result then changed by `state`."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, state: Any = None) -> None:
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("wrap", [lambda bomb: bomb, lambda bomb: [bomb], lambda bomb: np.array([bomb])])
def test_no_call_of_anything_else(tmp_path: Path, wrap: Callable[[Any], Any], protocol: int) -> None:
    marker = tmp_path / "ran"
    payload = pickle.dumps(wrap(Call(os.system, f"touch {marker}")), protocol)
    with pytest.raises(UnsafeDataError, match=r"call (posix|nt)\.system"):
        load_array(payload)
    assert not marker.exists()


@pytest.mark.parametrize(
    "call",
    [
        Call(eval, "1"),
        Call(getattr, 1, "real"),
        Call(np.load, "file"),
        Call(np.memmap, "file"),
        Call(np.fromfile, "file"),
        Call(type, "name", (), {}),
        Call(pickle.loads, pickle.dumps(1)),
        Call(bytearray, 10**9),
    ],
    ids=lambda call: call.reduced[0].__name__,
)
def test_no_other_function_however_harmless_it_looks(call: Call) -> None:
    with pytest.raises(UnsafeDataError, match="wants to call"):
        load_array(pickle.dumps(call))


def dotted(name: str) -> bytes:
    """A pickle that asks for an attribute of something it may have."""
    return b"\x80\x04\x8c\x05numpy" + b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93."


@pytest.mark.parametrize("name", ["dtype.__class__", "ndarray.tofile", "ndarray.__subclasses__", "dtype.mro"])
def test_no_attribute_of_what_is_allowed(name: str) -> None:
    with pytest.raises(UnsafeDataError, match="wants to call"):
        load_array(dotted(name))


def test_references_to_the_outside_are_refused() -> None:
    class Outside(pickle.Pickler):
        def persistent_id(self, value: Any) -> Any:
            return "x" if isinstance(value, np.ndarray) else None

    buffer = io.BytesIO()
    Outside(buffer).dump([np.zeros(1)])
    with pytest.raises(UnsafeDataError, match="outside itself"):
        load_array(buffer.getvalue())


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": 1},
        np.array([None]),
        np.array([{}]),
        [[1, 2], [3]],
        [np.zeros(1), np.zeros(2)],
        2**70,
        np.array([(1, 2)], [("a", "i4"), ("b", "i4")]),
        np.zeros(2, "M8[s]"),
        np.ma.masked_array([1.0]),
        np.rec.array([(1, 2)], dtype=[("a", "i4"), ("b", "i4")]),
    ],
    ids=repr,
)
def test_what_is_not_numbers_is_refused(value: Any) -> None:
    with pytest.raises(UnsafeDataError):
        load_array(pickle.dumps(value))


@settings(max_examples=examples(200))
@given(st.binary(max_size=60))
def test_random_bytes_are_refused(data: bytes) -> None:
    """The one exception: a few bytes that say a number."""
    try:
        found = load_array(data)
    except UnsafeDataError:
        return
    assert found.dtype.kind in "biufcSU"


@settings(max_examples=examples(300))
@given(st.sampled_from([np.arange(4.0), np.array([1, 2.5], object), np.float32(1)]), st.sampled_from(PROTOCOLS), st.data())
def test_flipped_bytes_are_refused_or_give_numbers(value: Any, protocol: int, data: st.DataObject) -> None:
    broken = bytearray(pickle.dumps(value, protocol))
    for place in data.draw(st.lists(st.integers(0, len(broken) - 1), min_size=1, max_size=3)):
        broken[place] = data.draw(st.integers(0, 255))
    try:
        found = load_array(bytes(broken))
    except UnsafeDataError:
        return
    assert found.dtype.kind in "biufcSU"


# ---- Memory ----------------------------------------------------------------------------------------------------------

CORRUPTIONS = """
import pickle, sys
import numpy as np
from numpy._core.multiarray import _reconstruct
from numpy._core.numeric import _frombuffer
from offline_core.data.episodes.unpickle import load_array
from offline_core.errors import UnsafeDataError

class Call:
    def __init__(self, *reduced): self.reduced = reduced
    def __reduce__(self): return self.reduced

def dtype(name, *state): return Call(np.dtype, (name, False, True), (3, "|", *state))

no_object = dtype("O8", None, None, None, -1, -1, 0)
address = b"A" * 16
array = Call(_reconstruct, (np.ndarray, (0,), b"b"), (1, (2,), no_object, False, address))
payloads = [
    [Call(_frombuffer, (address, no_object, (2,), "C"))] * 2,
    [array] * 2,
    Call(_frombuffer, (address, dtype("V8", None, ("a",), {"a": (np.dtype("f8"), 2**40)}, 8, 1, 0), (2,), "C")),
    Call(_frombuffer, (address, dtype("V8", (np.dtype("f8"), (2**30,)), None, None, 8, 1, 0), (2,), "C")),
    Call(_reconstruct, (np.ndarray, (10**6,), b"f8")),
    Call(np.ndarray, ((4,), "f8")),
]
for payload in payloads:
    try:
        load_array(pickle.dumps(payload, 5)).sum()
    except UnsafeDataError:
        print("refused", flush=True)
grown = Call(_frombuffer, (bytes(16), dtype("f4", None, None, None, 2**20, 1, 0), (4,), "C"))
print(load_array(pickle.dumps(grown, 5)).nbytes)
"""


def test_lies_about_memory_crash_nothing() -> None:
    """numpy's own `__setstate__` turns the first two of these into wild pointers; hence the process of their own."""
    run = subprocess.run([sys.executable, "-c", CORRUPTIONS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"died of {run.returncode}: {run.stderr[-500:]}"
    assert run.stdout.split() == ["refused"] * 6 + ["16"]


def test_functions_cannot_be_changed_from_within_a_pickle() -> None:
    """BUILD sets the attributes of whatever stands before it, and the interpreter's own functions stand there too."""
    for module, name in unpickle._ALLOWED:
        attributes = pickle.dumps((None, {"__defaults__": (1, 2)}), 2)[2:-1]
        changed = b"\x80\x02c" + f"{module}\n{name}\n".encode() + attributes + b"b"
        with pytest.raises(UnsafeDataError):
            load_array(changed + b"0K\x05.")  # forget it, and be the number five
        assert load_array(b"\x80\x02c" + f"{module}\n{name}\n".encode() + b"0K\x05.") == 5


@pytest.mark.parametrize(
    "order", [b"r" + struct.pack("<I", 10**7), b"p10000000\n", b"p +10_000_000\n", b"p\t\r\v10000000\n"], ids=repr
)
@pytest.mark.parametrize("header", [b"\x80\x02", ARRAY[: ARRAY.index(b"_frombuffer") + 13]], ids=["bare", "array"])
def test_an_order_to_remember_at_a_huge_index_takes_no_memory(header: bytes, order: bytes) -> None:
    """The C interpreter keeps an array as long as the index; here 160 MB, in the hands of others 64 GB."""
    tracemalloc.start()
    try:
        assert load_array(header + b"K\x05" + order + b".") == 5
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_lists_of_lists_of_lists_do_not_unfold() -> None:
    """Sixty bytes that numpy would turn into a billion numbers."""
    laughs: list[Any] = [1] * 10
    for _ in range(8):
        laughs = [laughs] * 10
    with pytest.raises(UnsafeDataError, match="list"):
        load_array(pickle.dumps(laughs))


def test_one_array_named_many_times_does_not_unfold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpickle, "MAX_REPEATED_BYTES", 2**16)
    row = np.zeros(2**10, np.uint8)
    rows = np.empty(100, object)
    rows[:] = [row] * 100
    for value in (rows, [row] * 100):
        data = pickle.dumps(value)
        assert len(data) < 2**12
        with pytest.raises(UnsafeDataError, match="unfolds"):
            load_array(data)
    assert load_array(pickle.dumps([row] * 10)).shape == (10, 2**10)


# ---- Dicts and tuples of arrays --------------------------------------------------------------------------------------


TREES = st.recursive(
    hnp.arrays(st.sampled_from(["?", "u1", "<i8", ">f4", "<U2"]), hnp.array_shapes(max_dims=2, max_side=3)),
    lambda children: (
        st.dictionaries(st.text(max_size=3), children, max_size=3)
        | st.dictionaries(st.text(max_size=3), children, max_size=3).map(collections.OrderedDict)
        | st.lists(children, min_size=1, max_size=3).map(tuple)
    ),
    max_leaves=5,
)


@settings(max_examples=examples(100))
@given(TREES, st.sampled_from(PROTOCOLS))
def test_nested_arrays_come_back(tree: Any, protocol: int) -> None:
    again, expected = load_nested(pickle.dumps(tree, protocol)), _plain_dicts(tree)
    assert nested.equal(again, expected)
    assert [leaf.dtype for leaf in nested.leaves(again)] == [leaf.dtype for leaf in nested.leaves(expected)]


def _plain_dicts(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _plain_dicts(child) for key, child in tree.items()}
    return tuple(map(_plain_dicts, tree)) if isinstance(tree, tuple) else tree


def test_a_list_of_arrays_is_one_array() -> None:
    assert load_nested(pickle.dumps({"a": [np.ones(2), np.zeros(2)]}))["a"].tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    "value", [{1: np.ones(2)}, {"a": None}, {"a": {"b": b"bytes"}}, (np.ones(1), {1}), {"a": [{"b": 1}]}], ids=repr
)
def test_what_else_stands_in_dicts_is_refused(value: Any) -> None:
    with pytest.raises(UnsafeDataError):
        load_nested(pickle.dumps(value))


def test_dicts_of_dicts_of_dicts_do_not_unfold() -> None:
    """Nor do those that hold themselves, lists that stand in several places, or tuples in ten thousand others."""
    laughs: Any = np.zeros(1)
    for _ in range(60):
        laughs = {"a": laughs, "b": laughs}
    endless: dict[str, Any] = {}
    endless["a"] = endless
    row = [0.0] * 1000
    for value in (laughs, endless, {str(i): row for i in range(1000)}):
        with pytest.raises(UnsafeDataError, match="several times"):
            load_nested(pickle.dumps(value))
    with pytest.raises(UnsafeDataError, match="recursion"):
        load_nested(b"K\x01" + b"\x85" * 10_000 + b".")  # which `pickle.dumps` itself could not walk


def test_one_array_under_many_names_does_not_unfold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpickle, "MAX_REPEATED_BYTES", 2**16)
    row = np.zeros(2**10, np.uint8)
    assert len(load_nested(pickle.dumps({str(i): row for i in range(64)}))) == 64
    with pytest.raises(UnsafeDataError, match="unfolds"):
        load_nested(pickle.dumps({str(i): row for i in range(65)}))


# ---- Infos -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [np.zeros(2**10, np.uint8), "x" * 2**10, b"x" * 2**10], ids=["array", "text", "bytes"])
def test_what_infos_hold_many_times_does_not_unfold(part: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpickle, "MAX_REPEATED_BYTES", 2**16)
    assert len(load_plain(pickle.dumps([part] * 64, 5))) == 64
    with pytest.raises(UnsafeDataError, match="unfolds to more than 65536 bytes"):
        load_plain(pickle.dumps([part] * 65, 5))


def test_a_long_key_of_many_infos_does_not_unfold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpickle, "MAX_REPEATED_BYTES", 2**16)
    key = "x" * 2**10
    with pytest.raises(UnsafeDataError, match="unfolds to more than 65536 bytes"):
        load_plain(pickle.dumps([{key: i} for i in range(65)], 5))
