"""The user's own class that reads and maps by itself, as what a run learns from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from offline_core.config import EnvironmentSpec
from offline_core.episodes import nested
from offline_core.errors import ConfigError, DataError
from offline_core.learning.config import DataConfig
from offline_core.learning.counting import Facts, counted, facts_of
from offline_core.own_errors import own_errors
from offline_core.prelearner.layout import STARTS, Columns, check_layout
from offline_core.prelearner.pipeline import Pipeline, Spaces
from offline_core.storage.dataset import DatasetRef
from offline_core.storage.manifest import Parent
from offline_core.storage.reading import ray_errors

if TYPE_CHECKING:
    from offline_core.learning.feed import Part


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
    facts: Facts
    environment: EnvironmentSpec | None

    @classmethod
    def of(cls, uri: str, config: DataConfig) -> OwnData:
        """What lies at `uri`, counted: it is read once. Needs Ray.

        Raises:
            ConfigError: the class cannot be made, or parameters do not go with it.
            DataError: what it gives is not what it has to be.
        """
        if config.source is not None or config.prelearner is not None:
            raise ConfigError(f"{config.data_class} reads and maps by itself: set data.source and data.prelearner to None.")
        made = _made(config, uri)
        with own_errors(f"data class {config.data_class}", "to say its spaces", ConfigError):
            spaces = made.spaces()
        pipeline = Pipeline.of(config.connectors, spaces)
        environment = getattr(made, "environment", None) if pipeline.spaces == spaces else None
        data = cls(config, pipeline, facts_of(uri), environment)
        return replace(data, facts=counted(data, data.facts))

    @property
    def ref(self) -> DatasetRef:
        return self.facts.ref

    @property
    def parent(self) -> Parent:
        return self.facts.parent

    @property
    def changes_show(self) -> bool:
        return self.facts.changes_show

    def parts(
        self, wanted: Sequence[str], *, looks_ahead: bool, prelearners: int, order: np.random.Generator | None
    ) -> Iterator[Part]:
        uri, name = self.facts.ref.uri, f"data class {self.config.data_class}"
        with own_errors(name, f"on {uri}"):
            given = iter(_made(self.config, uri).parts(tuple(wanted), looks_ahead=looks_ahead))
        while True:
            with own_errors(name, f"on {uri}"):
                part = next(given, None)
            if part is None:
                return
            try:
                made = check_layout(part, looks_ahead=looks_ahead)
                for connector in self.pipeline.connectors if len(made[STARTS]) else ():
                    made = connector(made)
            except DataError as error:
                raise type(error)(f"{uri}, by the {name}: {error}") from error
            yield {path: leaf for column, tree in made.items() for path, leaf in nested.flatten(tree, column).items()}

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return ray_errors()


def _made(config: DataConfig, uri: str) -> Any:
    assert config.data_class is not None
    made = config.data_class.make("data class", uri)
    if not (hasattr(made, "spaces") and hasattr(made, "parts")):
        raise ConfigError(f"The data class {config.data_class} has to have spaces() and parts(); see docs/customising.md.")
    return made
