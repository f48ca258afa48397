"""The parameters of a training that decide what is learned."""

from __future__ import annotations

from typing import Any

from offline_core.learning.algorithms.registry import algorithm_configs
from offline_core.learning.config import TrainingConfig

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

OF_STREAMS = {"window_steps"}


def decisive(config: TrainingConfig) -> dict[str, Any]:
    """Return the parameters that decide what is learned, as JSON: no other algorithm's, and none that only cost time."""
    settings = config.model_dump(mode="json", exclude=_SPEED_ONLY)
    return {name: value for name, value in settings.items() if name == config.algorithm or name not in algorithm_configs()}
