"""Parameters of columns that an import makes before it maps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from offline_core.data.inputs.bins import Discretisation
from offline_core.data.inputs.encoding import Encoding
from offline_core.data.inputs.row_steps import as_sql, names_in
from offline_core.data.store.allowed_roots import IS_URI
from offline_core.data.store.location import refuse_credentials
from offline_core.errors import ConfigError
from offline_core.runtime.config import Config


def known_zone(name: str) -> str:
    """The name of a time zone.

    Raises:
        ConfigError: there is no such zone.
    """
    import polars as pl  # only where it is asked

    try:
        is_zone = bool(name) and pl.Series([0]).cast(pl.Datetime("ns", "UTC")).dt.convert_time_zone(name) is not None
    except pl.exceptions.PolarsError:
        is_zone = False
    if not is_zone:
        raise ConfigError(f"{name!r} is no time zone; IANA's names are like Europe/Berlin and America/New_York.")
    return name


class Join(Config):
    """Columns of other files, by equal keys, by time, or both."""

    source: Annotated[str | list[str], IS_URI] = Field(description="A file, a folder, a pattern, or several of them.")
    format: str = Field("auto", description="As source.format, of a step a row.")
    on: list[str] = Field([], description="Columns that are equal in both; a computed one may be among them.")
    asof: str | None = Field(
        None, description="A column of times or numbers in both: the last row of the other files up to it."
    )
    strategy: Literal["backward", "nearest"] = Field(
        "backward", description="backward: the last one before, or at the same time. nearest: also after it."
    )
    tolerance: float | None = Field(None, ge=0, description="At most so far away: seconds of times, else units of the column.")
    time_format: str | None = Field(
        None,
        description="How texts in asof are written that are not by ISO 8601, such as %m/%d/%Y %H:%M. None: as they can be read "
        "in one way only.",
    )
    time_zone: str | None = Field(
        None,
        description="Of times in asof that have no offset, where others have: UTC, or a name like Europe/Berlin.",
    )
    columns: list[str] = Field(min_length=1, description="The columns to add.")

    @field_validator("time_zone")
    @classmethod
    def _is_known(cls, zone: str | None) -> str | None:
        return zone if zone is None else known_zone(zone)

    @model_validator(mode="after")
    def _keys(self) -> Join:
        for path in self.paths:
            refuse_credentials(path)
        if not self.on and self.asof is None:
            raise ConfigError(f"The join with {', '.join(self.paths)} has no keys: set on, or asof.")
        if self.asof is None and (self.time_format, self.time_zone) != (None, None):
            raise ConfigError(f"The join with {', '.join(self.paths)} has a time_format or a time_zone, but no asof: set it.")
        if both := sorted(set(self.columns) & {*self.key_columns}):
            raise ConfigError(f"The join with {', '.join(self.paths)} has {', '.join(both)} both as a key and as a column.")
        return self

    @property
    def paths(self) -> list[str]:
        """The source as a list."""
        return [self.source] if isinstance(self.source, str) else self.source

    @property
    def key_columns(self) -> list[str]:
        """All columns that rows are joined by."""
        return [*self.on, *([] if self.asof is None else [self.asof])]


class InEpisode(Config):
    """A column whose value needs earlier rows of the episode."""

    of: str = Field(description="An SQL expression on the columns of a row, such as the name of one: numbers.")
    how: Literal["lag", "sum", "last_known"] = Field(
        "lag",
        description="lag: its value some rows earlier. sum: the sum of all rows so far, with this one. last_known: its value, "
        "where that is null or NaN the last one before.",
    )
    steps: int = Field(1, ge=1, description="Of a lag, how many rows earlier.")
    first: float | None = Field(
        None, description="The value of a lag, or of a last_known, where there is no earlier one; needed."
    )

    @model_validator(mode="after")
    def _has_first(self) -> InEpisode:
        if (self.how == "sum") != (self.first is None):
            raise ConfigError(
                f"A {self.how} "
                + ("has no 'first'." if self.how == "sum" else "needs 'first', the value where there is none before.")
            )
        return self

    @property
    def column(self) -> str | None:
        """The column that `of` names; None: it computes something."""
        return next((name for name in names_in(self.of) if self.of in (name, as_sql(name))), None)

    @property
    def in_words(self) -> str:
        """What the value is, for messages."""
        match self.how:
            case "lag":
                return f"{self.of} of {self.steps:,} {'row' if self.steps == 1 else 'rows'} earlier in the episode"
            case "sum":
                return f"the sum of {self.of} in the episode so far, the row itself included"
            case "last_known":
                return f"the last known {self.of} of the episode"

    @property
    def of_row(self) -> str:
        """The expression, of float64 where the column may have gaps."""
        return f"CAST({self.of} AS DOUBLE)" if self.how == "last_known" else self.of


def last_reading(column: str, first: float = 0) -> dict[str, dict[str, Any]]:
    """What makes the last known values of a column, by its name: a part of `columns.in_episode`."""
    return {f"{column}_known": {"of": as_sql(column), "how": "last_known", "first": first}}


class ColumnsConfig(Config):
    """Columns made of others before `mapping` looks at them: joined, filled, computed, encoded, in this order."""

    joins: list[Join] = Field([], description="Columns of other files.")
    computed: dict[str, str] = Field(
        {},
        description='Name to an SQL expression on the columns of a row: {"reward": "-abs(sensors.tin - 21) - 0.1 * energy"}. '
        "_file and _folder are the names of the row's file and of its folder.",
    )
    fill: dict[str, bool | float | str] = Field(
        {}, description="Column to a constant in place of nulls and NaN, in files and in computed columns."
    )
    encode: dict[str, Encoding] = Field(
        {},
        description="Column to its categories, a list or auto, as one-hot vectors or numbers. Of actions: {categories: [off, "
        "heat], form: index}.",
    )
    discretise: dict[str, Discretisation] = Field(
        {}, description="Column of numbers to a few choices, for actions that algorithms choose from."
    )

    in_episode: dict[str, InEpisode] = Field(
        {},
        description="Column of numbers to what it is of earlier rows, once the rows of an episode are in order: {before: {of: "
        "tin, first: 20}}. For obs and extras; a policy in service is given it under its own name.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ColumnsConfig:
        order_of(self.of_rows)
        read = {name for text in self.of_rows.values() for name in names_in(text)} | {*self.encode, *self.discretise}
        if late := sorted(self.in_episode.keys() & (read | {name for join in self.joins for name in join.key_columns})):
            raise ConfigError(
                f"{late[0]} (columns.in_episode) is known once rows are in order, so no expression, category, bin or join can "
                "use it. Put it into obs, next to what it would be computed with."
            )
        names = [*self.of_rows, *(name for join in self.joins for name in join.columns)]
        if twice := sorted({n for n in names if names.count(n) > 1} | (self.computed.keys() & self.in_episode.keys())):
            raise ConfigError(f"Two joins or computed columns are to be called {', '.join(twice)}.")
        if filled := sorted(self.fill.keys() & self.late_with_gaps):
            raise ConfigError(
                f"{filled[0]} has the last value that is known where it is missing, so no fill can be there, too."
            )
        if both := sorted(self.encode.keys() & self.discretise.keys()):
            raise ConfigError(f"{', '.join(both)} cannot have both categories (encode) and bins (discretise).")
        return self

    @property
    def made(self) -> set[str]:
        """The names of the columns that are not in the source."""
        return {*self.of_rows, *(name for join in self.joins for name in join.columns)}

    @property
    def of_rows(self) -> dict[str, str]:
        """All expressions on single rows, by the column that each computes."""
        return self.computed | {name: column.of_row for name, column in self.in_episode.items()}

    @property
    def late_with_gaps(self) -> list[str]:
        """The columns whose gaps are filled with the last known value."""
        return [name for name, column in self.in_episode.items() if column.how == "last_known"]

    @property
    def needs_data(self) -> bool:
        """Whether categories or bins have to be inferred from all rows, or the form of dates."""
        return (
            any(encoding.categories == "auto" for encoding in self.encode.values())
            or any(binning.needs_data for binning in self.discretise.values())
            or any(join.asof is not None for join in self.joins)
        )

    def needed(self, mapped: Sequence[str]) -> list[str]:
        """The columns of the source that are needed for these mapped ones and all that is declared here."""
        names = [*mapped, *self.encode, *self.discretise, *self.fill]
        names += [name for text in self.of_rows.values() for name in names_in(text)]
        names += [name for join in self.joins for name in join.key_columns]
        return [name for name in dict.fromkeys(names) if name not in self.made]


def order_of(computed: Mapping[str, str]) -> list[str]:
    """Sort the names so that each expression needs only earlier ones.

    Raises:
        ConfigError: an expression cannot be read, or expressions need one another in a cycle.
    """
    needs = {name: set(names_in(text)) & computed.keys() for name, text in computed.items()}
    ordered: list[str] = []
    while rest := [name for name in computed if name not in ordered]:
        ready = [name for name in rest if needs[name] <= {*ordered}]
        if not ready:
            raise ConfigError(f"The computed columns {', '.join(rest)} need one another in a circle; break it.")
        ordered += ready
    return ordered
