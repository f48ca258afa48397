"""Bins of a number: a few choices in place of an amount, and the value that each stands for."""

from __future__ import annotations

import itertools

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from offline_core.errors import ConfigError, SchemaError
from offline_core.runtime.config import Config

MAX_BINS = 1024


class Bins(BaseModel):
    """n bins: number x is in bin i if edges[i-1] ≤ x < edges[i]."""

    model_config = ConfigDict(frozen=True)

    edges: list[float]
    """(n-1,) between the bins."""
    values: list[float]
    """(n,) what each bin stands for."""
    bounds: tuple[float, float] | None = None
    """Numbers outside are refused."""

    def codes(self, numbers: np.ndarray) -> np.ndarray:
        """(N,) int64: the bin of each number, -1 for NaN and what is out of bounds."""
        codes = np.searchsorted(self.edges, numbers, side="right").astype(np.int64)
        low, high = self.bounds or (-np.inf, np.inf)
        with np.errstate(invalid="ignore"):
            codes[~((numbers >= low) & (numbers <= high))] = -1
        return codes


class Discretisation(Config):
    """How a number becomes one of a few choices; set one of the four."""

    values: list[float] | None = Field(None, description="The choices themselves: each number becomes the nearest one.")
    edges: list[float] | None = Field(None, description="n+1 ascending edges of n bins, each of which stands for its middle.")
    equal: int | None = Field(
        None, ge=2, le=MAX_BINS, description="So many bins of one width from the smallest to the largest."
    )
    quantiles: int | None = Field(
        None, ge=2, le=MAX_BINS, description="So many bins of as many rows; each stands for its median."
    )

    @model_validator(mode="after")
    def _one(self) -> Discretisation:
        if sum(value is not None for value in (self.values, self.edges, self.equal, self.quantiles)) != 1:
            raise ConfigError("Set one of values, edges, equal and quantiles.")
        for numbers, least in ((self.values, 2), (self.edges, 3)):
            if numbers is not None and (len(numbers) < least or not (np.diff(numbers) > 0).all()):
                raise ConfigError(f"values and edges have to ascend, and to make at least two choices; they are {numbers}.")
        return self

    @property
    def needs_data(self) -> bool:
        """Whether the bins depend on the numbers."""
        return self.values is None and self.edges is None

    def bins(self, numbers: np.ndarray) -> Bins:
        """The bins, for finite numbers (N,), which only `equal` and `quantiles` look at.

        Raises:
            SchemaError: the numbers do not make so many.
        """
        if self.values is not None:
            return Bins(edges=[(a + b) / 2 for a, b in itertools.pairwise(self.values)], values=self.values)
        if self.edges is not None:
            return _middles(self.edges)
        count = self.equal or self.quantiles or 0
        if not len(numbers):
            raise SchemaError("There are no numbers to make bins of.")
        if self.equal is not None:
            edges = np.linspace(numbers.min(), numbers.max(), count + 1)
            bins = _middles(edges.tolist()).model_copy(update={"bounds": None})
        else:
            edges = np.quantile(numbers, np.arange(1, count) / count)
            middles = np.quantile(numbers, np.arange(0.5, count) / count, method="lower")  # numbers that occur
            bins = Bins(edges=edges.tolist(), values=middles.tolist())
        if not (np.diff([*bins.edges, np.inf]) > 0).all() or not (np.diff(bins.values) > 0).all():
            raise SchemaError(f"The numbers repeat so much that they make no {count} different bins; ask for fewer, or values.")
        return bins


def _middles(edges: list[float]) -> Bins:
    middles = [(a + b) / 2 for a, b in itertools.pairwise(edges)]
    return Bins(edges=edges[1:-1], values=middles, bounds=(edges[0], edges[-1]))
