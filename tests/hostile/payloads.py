"""Bytes where an episode should be."""

from __future__ import annotations

import base64
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import msgpack
import numpy as np

from offline_core.data.episodes import decode
from offline_core.data.episodes.episode_codec import unpack
from offline_core.data.episodes.unpickle import load_nested
from offline_core.data.formats.packed import unpack_column, unpack_values
from tests.data.datasets.factories import episode


class Runs:
    """Imports a module when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("hostile_code",)


def array(**changes: Any) -> dict[Any, Any]:
    packed = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": (2,), b"data": b"\0" * 8}
    return packed | {name.encode(): value for name, value in changes.items()}


VALUES: list[Any] = [
    array(shape=(10**9,)),
    array(shape=(10**18, 10**18)),
    array(shape=(-1, -1)),
    array(shape=(0, 2**62), data=b""),
    array(shape="x"),
    array(shape=None),
    array(type="O"),
    array(type="|O8", kind=b"O"),
    array(type="V99999999"),
    array(type="U999999999"),
    array(type="S2147483647", data=b"", shape=(1,)),
    array(type="(1000000,1000000)f4", data=b"", shape=(0,)),
    array(type="f4,O"),
    array(type=[["a", "O"]], kind=b"V"),
    array(type=[["a", "f4", [10**9]]], kind=b"V"),
    array(type="no type"),
    array(type=None),
    array(data=None),
    array(data="x" * 7),
    array(nd=False, data=b""),
    array(kind=b"O", data=pickle.dumps(Runs())),
    array(kind=b"O", data=pickle.dumps(np.array([Runs()], object))),
    array(kind=b"O", data=b"cos\nsystem\n(S'true'\ntR."),
    array(kind=b"O", data=b"\x80\x04\x95" + b"\xff" * 8),
    array(kind=b"O", data=b"(" * 10_000),
    array(kind=b"O", data=b"]" + b"q\x00h\x00a" * 10_000 + b"."),
    {b"complex": True, b"data": "x"},
    {b"complex": True, b"data": "9" * 10_000},
    {b"complex": True, b"data": Ellipsis.__class__.__name__},
    msgpack.ExtType(1, b"x" * 10),
    msgpack.ExtType(5, b""),
    msgpack.Timestamp(2**33, 0),
    {1: {2: {3: 4}}},
    "x" * 10**6,
    [[]] * 10**5,
]
RAW: list[bytes] = [
    b"",
    b"\xc1",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
    b"\x91" * 100_000,
    b"\x81\xa1a" * 100_000,
    b"\x81" * 100_000,
    b"\x80" * 100_000,
    b"\xd6\xff\xff\xff\xff\xff",
    pickle.dumps(Runs()),
    b"\x8a" + b"\xa5infos" + b"\x91" * 2000,
]


def pickles() -> list[bytes]:
    doubled = b"(lp0\n" + b"".join(b"(lp%d\ng%d\nag%d\na" % (n + 1, n, n) for n in range(40)) + b"."
    return [
        pickle.dumps(Runs()),
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'outside/canary'\ntR.",
        b"cnumpy\nfromfile\n(S'outside/canary'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cos\nsystem\n(I0\ntS'b'\ntR.",
        b"cnumpy\nndarray\n(I1000000000\ntR.",
        b"cnumpy\nndarray\n((I1000000\nI1000000\ntS'f8'\ntR.",
        b"\x80\x05\x96" + struct.pack("<Q", 2**62),
        doubled,
        b"I" + b"9" * 10**5 + b"\n.",
        b"(" * 10**5 + b".",
        b"Pcanary\n.",
        b"\x82\x01.",
    ]


def inputs(folder: Path) -> dict[str, Callable[[], Any]]:
    state = {
        "id_": "a",
        "observations": [0.0, 1.0],
        "actions": [1],
        "rewards": [1.0],
        "infos": [{}, {}],
        "is_terminated": True,
        "is_truncated": False,
    }
    from offline_core.data.episodes.episode_codec import encode

    whole = encode(episode(1))
    calls: dict[str, Callable[[], Any]] = {}
    for number, value in enumerate(VALUES):
        for name in ("observations", "infos"):
            data = msgpack.packb(state | {name: value})
            calls[f"{name} {number}"] = lambda data=data: decode(data)  # type: ignore[misc]
        calls[f"alone {number}"] = lambda data=msgpack.packb(value): unpack(data)  # type: ignore[misc]
    for number, data in enumerate(RAW):
        calls[f"raw {number}"] = lambda data=data: decode(data)  # type: ignore[misc]
        calls[f"raw {number} alone"] = lambda data=data: unpack(data)  # type: ignore[misc]
    for number in range(0, len(whole), max(1, len(whole) // 30)):
        broken = whole[:number] + bytes([whole[number] ^ 0x55]) + whole[number + 1 :]
        calls[f"changed at {number}"] = lambda data=broken: decode(data)  # type: ignore[misc]
        calls[f"cut at {number}"] = lambda data=whole[:number]: decode(data)  # type: ignore[misc]
    packed = [lz4.frame.compress(data) for data in pickles()]
    packed += [
        lz4.frame.compress(b"\0" * 2**31)[:-4],
        b'\x04"M\x18' + b"\xff" * 20,
        b"",
        lz4.frame.compress(b"\0" * 300 * 2**20),
    ]
    for number, data in enumerate(pickles()):
        calls[f"pickle {number}"] = lambda data=data: load_nested(data)  # type: ignore[misc]
    for number, data in enumerate(packed):
        text = base64.b64encode(data).decode()
        calls[f"values {number}"] = lambda text=text: unpack_values([text] * 2, "obs")  # type: ignore[misc]
        calls[f"column {number}"] = lambda text=text: unpack_column(text)  # type: ignore[misc]
    return calls
