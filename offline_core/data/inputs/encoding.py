"""Categories as numbers: one-hot vectors or indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from offline_core.errors import ConfigError
from offline_core.runtime.config import Config

if TYPE_CHECKING:  # policies load without Polars
    import polars as pl

MAX_CATEGORIES = 256
"""More are hardly categories; `auto` refuses them."""


class Encoding(Config):
    """How the values of a column become numbers. A list of categories alone stands for their one-hot vectors."""

    categories: list[str] | list[float] | Literal["auto"] = Field(
        "auto",
        description="In this order. auto: the distinct values of all rows, sorted, as a first pass over the data finds them.",
    )
    form: Literal["one_hot", "index"] = Field(
        "one_hot", description="one_hot: a vector, 1 at the category. index: its number, from 0."
    )
    other: bool = Field(False, description="A last category for unknown and missing values, which are refused otherwise.")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        declared = {"categories": value} if isinstance(value, list | str) else value
        known = declared.get("categories") if isinstance(declared, dict) else None
        if isinstance(known, list) and any(isinstance(e, bool) for e in known) and any(isinstance(e, str) for e in known):
            raise ConfigError(f"categories are texts and truth values, {known}: quote on, off, yes and no in YAML.")
        return declared

    @model_validator(mode="after")
    def _distinct(self) -> Encoding:
        known = self.categories
        if known != "auto" and (not known or len(set(known)) < len(known) or len(known) > MAX_CATEGORIES):
            raise ConfigError(f"categories have to be 1 to {MAX_CATEGORIES} different values; they are {str(known)[:200]}.")
        return self

    @property
    def known(self) -> list[str] | list[float]:
        """The categories, which must be found by now."""
        assert self.categories != "auto"
        return self.categories

    @property
    def is_text(self) -> bool:
        """Whether the categories are texts; else they are numbers."""
        return self.categories != "auto" and isinstance(self.categories[0], str)

    @property
    def size(self) -> int:
        """The number of slots."""
        return len(self.known) + self.other

    def codes(self, values: pl.Series) -> np.ndarray:
        """(N,) int64: the slot of each value, -1 for one that has none."""
        import polars as pl

        kind = pl.String if self.is_text else pl.Float64
        codes = values.cast(kind).replace_strict(
            pl.Series(self.known, dtype=kind), pl.arange(0, len(self.known), eager=True), default=None, return_dtype=pl.Int64
        )
        return codes.fill_null(len(self.known) if self.other else -1).to_numpy()

    def encoded(self, codes: np.ndarray) -> pl.Series:
        """One-hot vectors (float32) or indices (int64) of slots; zeros where there is none."""
        import polars as pl

        if self.form == "index":
            return pl.Series(codes)
        vectors = np.zeros((len(codes), self.size), np.float32)
        there = codes >= 0
        vectors[there, codes[there]] = 1
        return pl.Series(vectors, dtype=pl.Array(pl.Float32, self.size))
