"""The parameters of a training that decide what is learned."""

from __future__ import annotations

from typing import Any

from offline_core.learning.config import TrainingConfig
from offline_core.runtime.config import without_defaults

_SPEED_ONLY: dict[str, Any] = {
    "data": {
        "prelearners",
        "cpus_per_prelearner",
        "gpus_per_prelearner",
        "prelearner_options",
        "row_groups_per_read",
        "prefetch",
        "resident_bytes",
    },
    "evaluation": {"held_out", "location"},
    "compute": {"learners", "cpus_per_learner", "placement", "max_failures", "threads"},
    "initial_policy": True,
}
"""Parameters that do not change the policy, or are recorded otherwise: no part of its operation."""


def decisive(config: TrainingConfig, *, streamed: bool = True) -> dict[str, Any]:
    """Return the parameters that decide what is learned, without defaults: no other algorithm's, and none that only cost time.

    Arguments:
        streamed: the data does not stay in memory, so that its order depends on the window, unless it goes through a buffer.
    """
    has_windows = streamed and config.data.buffer is None
    excluded = _SPEED_ONLY if has_windows else _SPEED_ONLY | {"data": _SPEED_ONLY["data"] | {"window_steps"}}
    settings = without_defaults(config, exclude=excluded)
    return {name: value for name, value in settings.items() if name not in config.unused}
