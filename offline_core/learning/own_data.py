"""The user's own class that reads and maps by itself, as what a run learns from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from offline_core.config import EnvironmentSpec
from offline_core.errors import ConfigError, within
from offline_core.learning.config import DataConfig
from offline_core.learning.kept_rows import KeptRows
from offline_core.learning.mapping import Pool
from offline_core.learning.origin import Origin, place_of
from offline_core.own_errors import own_errors
from offline_core.prelearner.layout import Columns, check_layout, read_only
from offline_core.prelearner.pipeline import Pipeline, Spaces, a_pair
from offline_core.storage.reading import ray_errors
from offline_core.storage.sources.ray_reads import in_order

if TYPE_CHECKING:
    from offline_core.learning.feed import Part


_END: Any = object()


class TrainingData(Protocol):
    """A data class: made with the place and its arguments, it gives columns. It may use Ray Data, which is up.

    If it has an attribute `environment`, an `EnvironmentSpec`, the policy is played there while it trains.
    """

    def spaces(self) -> Spaces:
        """(observation space, action space) of what it gives."""

    def parts(self, wanted: Sequence[str], *, looks_ahead: bool) -> Iterator[Columns]:
        """All of it, in columns of whole episodes (see `offline_core.prelearner.layout`; `lay_out` makes them).

        The same each time it is called. Connectors run on what it gives, ours and the user's.

        Arguments:
            wanted: names of the columns that are needed; others may be there.
            looks_ahead: each episode needs a row for the observation after its last step.
        """


@dataclass(frozen=True, slots=True)
class OwnData:
    """Made anew in whatever process reads; a stream comes in the order in which it gives its parts."""

    config: DataConfig
    pipeline: Pipeline
    origin: Origin
    environment: EnvironmentSpec | None

    @classmethod
    def of(cls, uri: str, config: DataConfig) -> OwnData:
        """What lies at `uri`. Needs Ray.

        Raises:
            ConfigError: the class cannot be made, or parameters do not go with it.
        """
        if config.source is not None or config.prelearner is not None:
            raise ConfigError(f"{config.data_class} reads and maps by itself: set data.source and data.prelearner to None.")
        uri = place_of(uri)
        made, name = _made(config, uri), f"data class {config.data_class}"
        with own_errors(name, "to say its spaces", ConfigError):
            spaces = a_pair(made.spaces(), name)
        pipeline = Pipeline.of(config.connectors, spaces)
        environment = getattr(made, "environment", None)
        if not isinstance(environment, EnvironmentSpec | None):
            raise ConfigError(f"The environment of the {name} has to be an EnvironmentSpec, and not {environment!r}.")
        return cls(config, pipeline, Origin.of_place(uri), environment if pipeline.spaces == spaces else None)

    @property
    def is_own(self) -> bool:
        return True

    def parts(
        self,
        wanted: Sequence[str],
        *,
        looks_ahead: bool,
        pool: Pool | None,
        order: np.random.Generator | None,
        rows: KeptRows | None,
    ) -> Iterator[Part]:
        uri, name = self.origin.ref.uri, f"data class {self.config.data_class}"
        with in_order():
            with own_errors(name, f"on {uri}"):
                given = iter(_made(self.config, uri).parts(tuple(wanted), looks_ahead=looks_ahead))
            while True:
                with own_errors(name, f"on {uri}"):
                    part = next(given, _END)
                if part is _END:
                    return
                with within(f"{uri}, by the {name}"):
                    made = self.pipeline(read_only(check_layout(part, looks_ahead=looks_ahead)))
                yield made

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return ray_errors()


def _made(config: DataConfig, uri: str) -> Any:
    assert config.data_class is not None
    made = config.data_class.make("data class", uri)
    if not (hasattr(made, "spaces") and hasattr(made, "parts")):
        raise ConfigError(f"The data class {config.data_class} has to have spaces() and parts(); see docs/customising.md.")
    return made
