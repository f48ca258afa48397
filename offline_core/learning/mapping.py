"""From stored rows to parts: by this process, or by a pool of actors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_core.errors import ConfigError
from offline_core.learning.config import DataConfig
from offline_core.prelearner.mapper import Mapper, make_prelearner
from offline_core.prelearner.pipeline import Pipeline
from offline_core.prelearner.prelearner import Rows

if TYPE_CHECKING:
    from offline_core.learning.feed import Part

Pool = tuple[int, int]
"""As many actors at least, and at most."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """What every mapper of a run is made with."""

    config: DataConfig
    format: Rows
    wanted: tuple[str, ...]
    pipeline: Pipeline
    looks_ahead: bool
    where: str

    def mapper(self) -> Mapper:
        """One for this process."""
        return Mapper(**self._arguments)

    def stored_columns(self, present: Sequence[str]) -> list[str]:
        """Those of a dataset's columns that are read."""
        names = make_prelearner(self.config.prelearner, self._given).stored_columns()
        return list(present if names is None else names)

    def pooled(self, rows: Any, pool: Pool) -> Iterator[Part]:
        """The rows of a `ray.data.Dataset` mapped by actors, in their order.

        Raises:
            ConfigError: connectors of the user's own cannot be sent to other processes.
        """
        import ray.data

        check_can_be_sent(self._arguments)
        smallest, largest = pool
        mapped = rows.map_batches(
            Mapper,
            fn_constructor_kwargs=self._arguments,
            batch_size=None,
            batch_format="pyarrow",
            zero_copy_batch=True,
            compute=ray.data.ActorPoolStrategy(min_size=smallest, max_size=largest, initial_size=smallest),
            num_cpus=self.config.cpus_per_prelearner,
            num_gpus=self.config.gpus_per_prelearner or None,
            **({} if (options := self.config.prelearner_options) is None else options.named),
        )
        mapped.context.execution_options.preserve_order = True  # that of the rows, and not that of their completion
        return iter(mapped.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=self.config.prefetch))

    @property
    def _given(self) -> dict[str, Any]:
        return {"format": self.format, "wanted": self.wanted, "looks_ahead": self.looks_ahead, "where": self.where}

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"own": self.config.prelearner, "given": self._given, "pipeline": self.pipeline, "timed": True}


def check_can_be_sent(made: object) -> None:
    """To other processes.

    Raises:
        ConfigError: a connector or prelearner of the user's own cannot.
    """
    from ray import cloudpickle

    try:
        cloudpickle.dumps(made)
    except Exception as error:  # whatever the user's objects hold
        raise ConfigError(
            f"A connector or prelearner cannot be sent to other processes: {error!r}. Set data.prelearners and "
            "compute.learners to 0."
        ) from error
