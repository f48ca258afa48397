"""Parameters of an expert that its algorithm, or a preset, has where its user says nothing."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from offline_core.learning.presets import with_preset
from offline_core.runtime.overlay import given_values, overlaid

OFF_POLICY: dict[str, Any] = {
    "num_envs": 4,
    "rollout_steps": 1,
    "rollouts_per_iteration": 2_500,
    "evaluation": {"episodes": 10},
    "optimizer": {"learning_rate": 3e-4, "batch_size": 256, "max_gradient_norm": None},
    "network": {"hidden_sizes": [256, 256], "activation": "relu"},
}
"""Of sac and td3: the networks of the papers, few copies, and rollouts as short as can be."""
OFF_POLICY_RECORDING: dict[str, Any] = {"every_rollouts": 2_500}

_ONE_COPY = {"num_envs": 1, "total_steps": 1_000_000, "evaluation": {"episodes": 10}}
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "ppo": {
        "mujoco": {
            **_ONE_COPY,
            "rollout_steps": 2_048,
            "rollouts_per_iteration": 10,
            "network": {"normalize_observations": True},
            "optimizer": {"learning_rate": 3e-4, "schedule": "linear", "batch_size": 64},
            "ppo": {
                "value_coefficient": 0.25,
                "value_clip_range": 0.2,
                "normalize_rewards": True,
            },
        }
    },
    "sac": {"mujoco": {**_ONE_COPY, "rollouts_per_iteration": 10_000, "replay": {"learning_starts_steps": 10_000}}},
    "td3": {"mujoco": {**_ONE_COPY, "rollouts_per_iteration": 10_000, "replay": {"learning_starts_steps": 25_000}}},
}
"""By algorithm and name: those of CleanRL for ppo and td3 (Huang et al. 2022), of Stable-Baselines3's zoo for sac."""


def with_defaults(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """`values` of an `ExpertConfig`, and beneath them those of its preset, then of its algorithm; ppo has the fields' own.

    Raises:
        ValueError: there is no such preset.
    """
    if values.get("preset"):
        values = with_preset(values, model, PRESETS)
    if values.get("algorithm", "ppo") == "ppo":
        return values
    under = OFF_POLICY | ({"recording": OFF_POLICY_RECORDING} if values.get("recording") is not None else {})
    return overlaid(under, given_values(values, model) | {"algorithm": values["algorithm"]})
