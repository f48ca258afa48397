"""Sizes in bytes, as people write them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ByteSize, TypeAdapter, WithJsonSchema

_SIZE = TypeAdapter(ByteSize)
_SHOWN = [{"type": "integer", "title": "Bytes"}, {"type": "string", "title": "With a unit", "examples": ["128 MiB"]}]


def _bytes_of(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return int(_SIZE.validate_python(value))
    except ValueError:
        raise ValueError("this is no size: write a number of bytes, or one with a unit, such as 128 MiB or 1.5 GB") from None


ByteCount = Annotated[int, BeforeValidator(_bytes_of), WithJsonSchema({"anyOf": _SHOWN})]
"""A number of bytes, or text with a unit: "128 MiB", "1.5 GB"."""
