"""What the observations and actions of a dataset are made of: kept in its manifest, and in the policies learned from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from pydantic import BaseModel, ConfigDict

from offline_core.data.inputs.row_steps import RowSteps
from offline_core.errors import SchemaError, first_line

if TYPE_CHECKING:  # policies load without Polars
    import polars as pl

    from offline_core.data.inputs.frames import Rows


COLUMNS, CATEGORIES = ("obs", "action", "computed", "fill"), ("encode", "bins", "labels")
"""Fields of what is looked at, and of the values that are told apart in it."""
MEANING = ("obs", "labels", "computed", "encode", "bins")
"""Fields of which another value lets the same numbers be other observations or actions."""


class InputColumns(BaseModel):
    """From raw columns to observations, and from actions to what a log says of them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    steps: RowSteps
    """Those that observations need; `steps.columns` are the raw columns, in order."""
    obs: list[str]
    """The columns after the steps that are joined into the vector, in order."""
    action: str | None = None
    """The raw column of the actions, if it is one."""
    labels: list[str] | list[float] | None = None
    """What each Discrete action is called there: categories, or the values of bins. None: actions are as in the log."""
    of_earlier: dict[str, str] = {}
    """What the raw columns are that a row does not say without earlier ones of its episode, in words for messages."""

    def observations(self, rows: Rows, space: gym.Space[Any]) -> np.ndarray:
        """The observations (B, *shape) of raw rows, in the dtype of their space.

        Raises:
            SchemaError: a column or a value is missing, or is not what it was in the import.
        """
        from offline_core.data.inputs.computing import stepped  # policies load without Polars
        from offline_core.data.inputs.frames import frame_of

        frame = frame_of(rows)
        if missing := [name for name in self.of_earlier if name in self.steps.columns and name not in frame.columns]:
            said = "; ".join(f"{name} is {self.of_earlier[name]}" for name in missing)
            raise SchemaError(
                f"{said}. A row does not say that by itself: give it as a column {', '.join(missing)}.", column=missing[0]
            )
        frame, bad = stepped(self.steps, frame)
        if bad:
            first = min(bad)
            raise SchemaError(f"Row {first.row}: {first.error}", column=first.error.column, step=first.row)
        size = int(np.prod(space.shape or ()))
        vectors = (
            np.concatenate([self._numbers(frame, name) for name in self.obs], axis=1) if len(frame) else np.empty((0, size))
        )
        if vectors.shape[1] != size:
            made = f"{vectors.shape[1]} numbers of a row, where observations have {size}"
            raise SchemaError(f"The columns {', '.join(self.obs)} make {made}.", column=self.obs[-1])
        return vectors.astype(space.dtype).reshape(len(frame), *(space.shape or ()))

    def raw_actions(self, actions: Any) -> Any:
        """Actions (B, …) as the log says them: (B,) labels where they have some."""
        return actions if self.labels is None else np.array(self.labels)[actions]

    def differences(self, other: InputColumns, *, only: Collection[str] | None = None) -> str:
        """What differs, for a message; empty if nothing does.

        Arguments:
            only: fields of this class or of its steps that are looked at; None: all.
        """
        own, theirs = (inputs.model_dump(exclude={"steps"}) | inputs.steps.model_dump() for inputs in (self, other))
        return "; ".join(f"{name} is {own[name]} and {theirs[name]}" for name in only or own if own[name] != theirs[name])

    def _numbers(self, frame: pl.DataFrame, name: str) -> np.ndarray:
        """(B, n) float64, n the length of the lists in this column, or 1."""
        import polars as pl

        values = frame[name]
        while isinstance(values.dtype, pl.List | pl.Array) and not values.has_nulls():
            lengths, a_row = values.cast(pl.List(values.dtype.inner)).list.len(), len(values) // len(frame)
            if len(other := (lengths != lengths[0]).arg_true()):
                row, length = int(other[0]) // a_row, lengths[other[0]]
                raise SchemaError(
                    f"Row {row}: {name!r} holds {length} numbers, where row 0 holds {lengths[0]}.", column=name, step=row
                )
            values = values.explode()
        missing = values.is_null() | values.is_nan().fill_null(False) if values.dtype.is_float() else values.is_null()
        if missing.any():
            row = int(missing.arg_true()[0]) * len(frame) // len(values)
            raise SchemaError(f"Row {row}: column {name!r} is missing, and has no fill.", column=name, step=row)
        try:
            numbers = values.cast(pl.Float64).to_numpy().reshape(len(frame), -1)
        except pl.exceptions.PolarsError as error:
            raise SchemaError(f"Column {name!r} holds no numbers: {first_line(error)}.", column=name) from error
        if not (finite := (np.abs(numbers) <= np.finfo(np.float32).max).all(axis=1)).all():
            row = int(np.flatnonzero(~finite)[0])
            said = "is infinite as float32, in which policies compute"
            raise SchemaError(f"Row {row}: column {name!r} {said}.", column=name, step=row)
        return numbers


def common_inputs(known: Sequence[tuple[str, InputColumns | None]]) -> InputColumns | None:
    """Return the input columns that all of the datasets share, given by name; None if no dataset has any.

    A dataset without input columns, such as a recording in a simulator, fits any other.

    Raises:
        SchemaError: two differ; the message says in what.
    """
    said = [(name, inputs) for name, inputs in known if inputs is not None]
    for name, inputs in said[1:]:
        if differences := said[0][1].differences(inputs):
            raise SchemaError(
                f"The observations or actions of {said[0][0]} and {name} are made in different ways: {differences}. Import "
                "them with the same mapping and columns, naming the categories and bins that one of them found by itself."
            )
    return said[0][1] if said else None
