"""A user's data class, which reads and maps by itself, as a source of training columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from offline_core.data.datasets.read_errors import ray_errors
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.formats.sources.ray_reads import in_order
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.errors import ConfigError, within
from offline_core.learning.config import DataConfig
from offline_core.learning.data_source import DataSource, place_of
from offline_core.learning.prelearner.pipeline import Pipeline, Spaces, a_pair, check_batch
from offline_core.learning.source import ReadSpec
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.user_errors import user_errors

_END: Any = object()


class TrainingData(Protocol):
    """A data class: made with the location and its arguments, it returns episode batches. It may use Ray Data, which is up.

    If it has an attribute `environment`, an `EnvironmentSpec`, the policy is played there while it trains.
    """

    def spaces(self) -> Spaces:
        """(observation space, action space) of its steps."""

    def batches(self, wanted: Sequence[str], *, needs_next_obs: bool) -> Iterator[EpisodeBatch]:
        """All whole episodes, such as `EpisodeBatch.from_steps` makes them; the same each time it is called.

        Connectors and checks run on them.

        Arguments:
            wanted: names of the columns that are needed; others may be there.
            needs_next_obs: the batches need `has_last`, a row for the observation after each episode's last step.
        """


@dataclass(frozen=True, slots=True)
class UserData:
    """Made anew in each process that reads; streaming keeps the order of its batches."""

    config: DataConfig
    pipeline: Pipeline
    origin: DataSource
    environment: EnvironmentSpec | None

    @classmethod
    def of(cls, uri: str, config: DataConfig) -> UserData:
        """The data at `uri`. Needs Ray.

        Raises:
            ConfigError: the class cannot be made, or parameters do not go with it.
        """
        if config.source is not None or config.prelearner is not None:
            raise ConfigError(f"{config.data_class} reads and maps by itself: set data.source and data.prelearner to None.")
        uri = place_of(uri)
        made, name = _made(config, uri), f"data class {config.data_class}"
        with user_errors(name, "to say its spaces", ConfigError):
            spaces = a_pair(made.spaces(), name)
        pipeline = Pipeline.of(config.connectors, spaces)
        environment = getattr(made, "environment", None)
        if not isinstance(environment, EnvironmentSpec | None):
            raise ConfigError(f"The environment of the {name} has to be an EnvironmentSpec, and not {environment!r}.")
        return cls(config, pipeline, DataSource.of_place(uri), environment if pipeline.spaces == spaces else None)

    @property
    def is_own(self) -> bool:
        return True

    @property
    def input_columns(self) -> InputColumns | None:
        return None

    @property
    def row_groups(self) -> int:
        return 0

    def batches(self, spec: ReadSpec) -> Iterator[EpisodeBatch]:
        uri, name = self.origin.ref.uri, f"data class {self.config.data_class}"
        with in_order():
            with user_errors(name, f"on {uri}"):
                found = iter(_made(self.config, uri).batches(spec.wanted, needs_next_obs=spec.needs_next_obs))
            while True:
                with user_errors(name, f"on {uri}"):
                    batch = next(found, _END)
                if batch is _END:
                    return
                with within(f"{uri}, by the {name}"):
                    batch = self.pipeline(check_batch(batch, has_last=spec.needs_next_obs).read_only())
                yield batch

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return ray_errors()


def _made(config: DataConfig, uri: str) -> Any:
    assert config.data_class is not None
    made = config.data_class.make("data class", uri)
    if not (hasattr(made, "spaces") and hasattr(made, "batches")):
        raise ConfigError(f"The data class {config.data_class} has to have spaces() and batches(); see docs/customising.md.")
    return made
