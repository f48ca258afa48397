"""From stored rows to parts: one prelearner in this process, or a pool of actors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import pyarrow as pa

from offline_core.learning.config import DataConfig
from offline_core.prelearner.own_prelearner import OwnPreLearner
from offline_core.prelearner.pipeline import Pipeline, Spaces
from offline_core.prelearner.prelearner import PreLearner, Rows

if TYPE_CHECKING:
    from offline_core.learning.feed import Part


@dataclass(frozen=True, slots=True)
class Mapping:
    """What every prelearner of a run is made with."""

    config: DataConfig
    format: Rows
    wanted: tuple[str, ...]
    pipeline: Pipeline
    looks_ahead: bool
    where: str

    def prelearner(self) -> Callable[[pa.Table], Part]:
        """One, ours or the user's."""
        kind, arguments = self._call
        return kind(**arguments)  # type: ignore[no-any-return]

    def stored_columns(self) -> tuple[str, ...]:
        """The columns of a dataset that it reads."""
        made = self.prelearner()
        return (made.prelearner if isinstance(made, OwnPreLearner) else made).stored_columns()  # type: ignore[attr-defined, no-any-return]

    def pooled(self, rows: Any, prelearners: int) -> Iterator[Part]:
        """The rows of a `ray.data.Dataset` mapped by so many actors, in their order."""
        import ray.data

        kind, arguments = self._call
        mapped = rows.map_batches(
            kind,
            fn_constructor_kwargs=arguments,
            batch_size=None,
            batch_format="pyarrow",
            zero_copy_batch=True,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=prelearners, initial_size=prelearners),
            num_cpus=self.config.cpus_per_prelearner,
        )
        mapped.context.execution_options.preserve_order = True  # that of the rows, and not that of their completion
        mapped.context.target_max_block_size = None  # blocks of whole episodes, however large
        return iter(mapped.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=self.config.prefetch))

    @property
    def _call(self) -> tuple[type, dict[str, Any]]:
        """(class, arguments) of a prelearner."""
        given = {
            "format": self.format,
            "wanted": self.wanted,
            "connectors": self.pipeline.connectors,
            "looks_ahead": self.looks_ahead,
            "where": self.where,
        }
        if self.config.prelearner is None:
            return PreLearner, given
        return OwnPreLearner, {"code": self.config.prelearner, "given": given}


def own_spaces(
    config: DataConfig, format: Rows, stored: tuple[gym.Space[Any] | None, gym.Space[Any] | None], *, where: str
) -> Spaces | None:
    """The spaces of the episodes that a prelearner makes; None if nobody says them.

    Raises:
        ConfigError: the prelearner cannot be made.
    """
    observation_space, action_space = stored
    if config.prelearner is not None:
        given = {"format": format, "wanted": (), "connectors": (), "looks_ahead": False, "where": where}
        made = OwnPreLearner(config.prelearner, given)
        observation_space, action_space = made.spaces(observation_space, action_space)
    return None if observation_space is None or action_space is None else (observation_space, action_space)
