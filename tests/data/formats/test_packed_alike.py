"""Packed values that are read all at once come to what each of them holds."""

from __future__ import annotations

import base64
import pickle
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest

from offline_core.data.formats import packed
from offline_core.data.formats.packed import unpack_values
from offline_core.errors import CorruptFileError, EpisodeError, SchemaError


def text_of(value: Any, **frame: Any) -> str:
    return base64.b64encode(lz4.frame.compress(pickle.dumps(value, protocol=5), **frame)).decode("ascii")


@pytest.mark.parametrize("shape", [(4,), (1,), (5, 3)])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "i1", "<i8"])
@pytest.mark.parametrize("frame", [{}, {"content_checksum": True}])
def test_numbers_of_any_kind(shape: tuple[int, ...], dtype: str, frame: dict[str, Any]) -> None:
    """Zeros, and the few that lz4 stores otherwise, among them."""
    values = (np.random.default_rng(0).standard_normal((200, *shape)) * 100).astype(dtype)
    values[::17] = 0
    values[1::40] = values[1::40].flat[0]
    found = unpack_values([text_of(value, **frame) for value in values], "x")
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


def test_most_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).standard_normal((500, 4)).astype(np.float32)
    texts = pa.chunked_array([[text_of(value) for value in values]]).slice(3)
    unpacked, unpack = list[str](), packed._unpacked
    monkeypatch.setattr(packed, "_unpacked", lambda text: unpacked.append(text) or unpack(text))
    assert unpack_values(texts, "x").tobytes() == values[3:].tobytes()
    assert len(unpacked) < 50


@pytest.mark.parametrize("at", [0, 20, 39])
def test_one_among_many_is_wrong(at: int) -> None:
    texts = [text_of(np.float32([i, i + 0.1, 7 * i, 1 / (i + 1)])) for i in range(40)]
    good = texts[at]
    begin = len(good) // 2
    texts[at] = good[:begin] + "*" + good[begin + 1 :]
    with pytest.raises(CorruptFileError, match="A packed value cannot be unpacked"):
        unpack_values(texts, "x")
    texts[at] = "other"
    with pytest.raises(SchemaError, match="mixes packed arrays with other text"):
        unpack_values(texts, "x")
    texts[at] = text_of(np.float32([1, 2, 3]))
    with pytest.raises(EpisodeError, match="differ in shape"):
        unpack_values(texts, "x")
    texts[at] = text_of(np.array([0.1, 2, 3, 4]))
    assert unpack_values(texts, "x")[at].tolist() == [0.1, 2, 3, 4]
