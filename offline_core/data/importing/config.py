"""Parameters of imports and conversions."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from operator import attrgetter
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.episodes import space_from_json
from offline_core.data.episodes.codecs import Format
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.formats.sources.opening import SourceConfig
from offline_core.data.importing.columns_config import ColumnsConfig, known_zone
from offline_core.data.importing.mapping import canonical_mapping, observed_action
from offline_core.data.importing.masked import masked_spaces, without_masks
from offline_core.errors import ConfigError, SpaceError
from offline_core.runtime.config import Config, EnvironmentSpec, closed, parse
from offline_core.runtime.engine import Engine

IdsPer = Literal["source", "file", "folder", "date"]
Order = Literal["auto", "t", "time", "linked", "stored", "single_step"]


ENGINE_DESCRIPTION = "local: one process. ray: all of a Ray cluster. Both write the same bytes."


class EpisodesConfig(Config):
    """How rows become episodes: which belong together, in which order, and what happens to those that are not whole."""

    order: Order = Field(
        "auto",
        description="t: column t numbers the steps. time: column t only sorts them, a timestamp for example. linked: each step "
        "is followed by the one whose obs is its new_obs. stored: as the rows lie; timestamps in t show gaps. single_step: "
        "every row by itself, as RLlib does it. auto: t where column t holds whole numbers that go on by one, time where it "
        "holds others, else linked, else stored; without ids an episode begins where t does not grow, and rows are linked only "
        "where they do not lie in order.",
    )
    first_t: int = Field(0, description="The t of an episode's first step.")
    ids_per: IdsPer = Field(
        "source",
        description="Where an id means one episode. source: everywhere. file, folder: equal ids in two of them are two "
        "episodes. date: on two days of the timestamps in t. A hash of the URI, or the date, is added to the ids.",
    )
    time_zone: str | None = Field(
        None,
        description="Where days begin, for ids_per: date, by the name that IANA gives it, such as Europe/Berlin. For "
        "timestamps in UTC or with offsets. None: at midnight of UTC, or of the local time where timestamps have no offset.",
    )
    max_gap: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="With order: time, and with order: stored where t holds timestamps or this is given, steps of one id "
        "that lie further apart belong to two episodes. In seconds if t holds "
        "timestamps, else in its unit. None: 20 times what three quarters of the id's steps take at most, if it has over "
        "16 steps at a regular pace (upper quartile at most 1.5 times the lower one) and new_obs does not say that they "
        "follow; other ids are not cut.",
    )
    incomplete: Literal["cut", "end", "keep", "drop"] = Field(
        "cut",
        description="Episodes without an end, or with steps missing. cut: each part becomes an episode, truncated where it "
        "breaks off. end: likewise, but the last row before another episode is its end, as the last click of a visit is: it "
        "terminates there. keep: parts keep their t and stay open. drop: leave all parts of such an episode out.",
    )
    last_new_obs: Literal["repeat", "drop"] = Field(
        "repeat",
        description="For data without new_obs, which is then the obs of the next step. What follows the last one. repeat: its "
        "own obs. drop: an episode that does not terminate loses its last step, as D4RL does it; one that terminates keeps it "
        "with its obs repeated, of which no value is taken.",
    )
    time_limit_steps: int | None = Field(
        None,
        ge=1,
        description="An end at this step is a time limit: truncated, not terminated. For data with one flag for both.",
    )

    @field_validator("time_zone")
    @classmethod
    def _is_known(cls, zone: str | None, info: ValidationInfo) -> str | None:
        if zone is None:
            return None
        if info.data.get("ids_per") != "date":
            raise ConfigError("time_zone says where days begin: set it with ids_per: date.")
        return known_zone(zone)


class ImportConfig(Config):
    """What to read, what its columns mean and are made of, how rows become episodes, and what to write."""

    source: SourceConfig = Field(SourceConfig(), description="The format, and what of it to read.")
    mapping: dict[str, str | list[str]] = Field(
        {},
        description='Canonical name to the name in the source: {"obs": "o_t", "actions": "a_t", "rewards": "r_t", "new_obs": '
        '"o_tp1", "infos": "i_t", "dones": "d_t"}; a list of names makes a vector. Columns that are not mapped become extras. '
        "action_mask: the actions that were allowed, a list of 0 and 1 or a column for each; a part of the observations then.",
    )
    columns: ColumnsConfig = Field(
        ColumnsConfig(),
        description="Columns made of others before the mapping: joined, computed by expressions, filled, encoded. Policies "
        "that learn from the data keep what their observations are made of.",
    )
    episodes: EpisodesConfig = Field(EpisodesConfig(), description="How rows become episodes.")
    environment: EnvironmentSpec | None = Field(
        None, description="Gives the spaces of observations and actions, and their types."
    )
    observation_space: dict[str, Any] | None = Field(
        None,
        description="Instead of an environment, such as {space: box, low: -1, high: [1, 2], shape: [2], dtype: "
        "float32} or {space: discrete, n: 2}: RLlib's JSON map, whose bounds may be numbers.",
    )
    action_space: dict[str, Any] | None = Field(None, description="Likewise.")
    recorded_action_range: tuple[float, float] | None = Field(
        None,
        description="Actions were recorded between these two numbers, (-1, 1) for example; they are clipped to them, and "
        "scaled to the bounds of the action space, as RLlib does. None: in the units of the environment, or told from the "
        "data if RLlib recorded them.",
    )
    append: bool = Field(
        False,
        description="The next version has the episodes of the one before, and what is new: only new or changed files are "
        "read, and late rows complete or correct episodes of their id. The first time, all is imported.",
    )
    unreadable: Literal["fail", "quarantine"] = Field(
        "fail",
        description="fail: stop at the first row or file that cannot be read. quarantine: list them beside the data, go on.",
    )
    format: Format = Field("episodes", description="What to write: an episode a row, or a step a row.")
    engine: Engine = Field("local", description=ENGINE_DESCRIPTION)
    partitions: int | None = Field(
        None,
        ge=1,
        le=65536,
        description="Parts that are sorted one at a time, each in memory, where the rows of an id lie apart. None: by the size "
        "of the files.",
    )
    files: FilesConfig = Field(FilesConfig(), description="Size and compression of the data files.", json_schema_extra=closed)

    @field_validator("mapping")
    @classmethod
    def _canonical(cls, mapping: dict[str, str | list[str]]) -> dict[str, str | list[str]]:
        mapping = canonical_mapping(mapping)
        if said := observed_action(mapping):
            raise ConfigError(said)
        return mapping

    @field_validator("recorded_action_range")
    @classmethod
    def _ascending(cls, recorded: tuple[float, float] | None) -> tuple[float, float] | None:
        if recorded is not None and not -inf < recorded[0] < recorded[1] < inf:
            raise ConfigError(f"recorded_action_range has to be finite and ascend, as (-1, 1) does; it is {recorded}.")
        return recorded

    def having(self, name: str, value: Any) -> ImportConfig:
        """The same parameters but for one, which may be that of a group, such as `episodes.order`.

        Raises:
            ConfigError: it cannot have that value.
        """
        parameters = {field: getattr(self, field) for field in self.model_fields_set}
        group, _, inner = name.rpartition(".")
        if group:
            held = getattr(self, group)
            value = {field: getattr(held, field) for field in held.model_fields_set} | {inner: value}
        return parse(ImportConfig, parameters | {group or inner: value})

    def adding(self, name: str, more: Mapping[str, Any]) -> ImportConfig:
        """The same parameters with more entries in one that is a mapping, such as `columns.fill`."""
        return self.having(name, {**attrgetter(name)(self), **more})

    @property
    def pushed_down(self) -> SourceConfig:
        """The source, with all columns that are needed if only some are chosen."""
        if self.source.columns is None:
            return self.source
        listed = [name for name in self.source.columns if name not in self.columns.made]
        needed = [name for name in self.columns.needed([]) if name not in ("_file", "_folder")]
        more = [root for name in needed if not {name, root := name.partition(".")[0]} & {*listed}]
        return self.source.model_copy(update={"columns": list(dict.fromkeys([*listed, *more]))})

    def spaces(self) -> StoredSpaces:
        """(observation space, action space) as declared, None where they are not.

        Raises:
            ConfigError: a space cannot be read, or the environment not be made.
        """
        declared = (self.observation_space, self.action_space)
        if self.environment is not None:
            if declared != (None, None):
                raise ConfigError("Declare spaces either by environment or by themselves, not by both.")
            return self._with_masks(spaces_of(self.environment))
        try:
            observation, action = (None if space is None else space_from_json(space) for space in declared)
        except SpaceError as error:
            raise ConfigError(f"What is declared is no space. {error}") from error
        return self._with_masks((observation, action))

    def _with_masks(self, spaces: StoredSpaces) -> StoredSpaces:
        masked = masked_spaces(spaces, self.mapping)
        without_masks(masked, self.mapping)
        return masked


class ConversionConfig(Config):
    """Convert a dataset to the other storage format."""

    format: Format = Field("episodes", description="What to write: an episode a row, or a step a row.")
    files: FilesConfig = Field(FilesConfig(), description="Size and compression of the data files.", json_schema_extra=closed)
    engine: Engine = Field("local", description=ENGINE_DESCRIPTION)
