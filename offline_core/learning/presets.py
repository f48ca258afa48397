"""Settings of the papers and their reference code, by name: what a training has where its user says nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

from offline_core.runtime.overlay import given_values, overlaid
from offline_core.runtime.parameter_names import did_you_mean

Presets: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Values by algorithm and name."""

_UPDATES = {"max_updates": 1_000_000, "updates_per_iteration": 5_000, "batch_size": 256, "learning_rate": 3e-4}
_LOCOMOTION: dict[str, Any] = {
    "network": {"hidden_sizes": [256, 256], "activation": "relu"},
    "optimizer": _UPDATES,
    "evaluation": {"episodes": 10},
}
_NORMALIZED = {"network": {"normalize_observations": True}}
_THREE_LAYERS = {"network": {"hidden_sizes": [256, 256, 256]}}
_TRANSFORMER = {
    "network": {"hidden_sizes": [], "normalize_observations": True},
    "optimizer": {
        "max_updates": 100_000,
        "updates_per_iteration": 5_000,
        "batch_size": 64 * 20,
        "learning_rate": 1e-4,
        "warmup_updates": 10_000,
        "max_gradient_norm": 0.25,
    },
    "evaluation": {"episodes": 10},
}
_REBRAC_PENALTIES = {
    "halfcheetah-medium": (0.001, 0.01),
    "halfcheetah-medium-replay": (0.01, 0.001),
    "halfcheetah-medium-expert": (0.01, 0.1),
    "hopper-medium": (0.01, 0.01),
    "hopper-medium-replay": (0.05, 0.5),
    "hopper-medium-expert": (0.1, 0.01),
    "walker2d-medium": (0.05, 0.1),
    "walker2d-medium-replay": (0.05, 0.01),
    "walker2d-medium-expert": (0.01, 0.01),
}
"""Of the policy and of the critics (Tarasov et al. 2023, table 9)."""


def _all(*parts: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        merged = overlaid(merged, part)
    return merged


_IQL = _all(
    _LOCOMOTION,
    {"network": {"bounded_mean": True}, "optimizer": {"networks": {"policy": {"schedule": "cosine"}}}},
    {"iql": {"beta": 3.0, "expectile": 0.7}},
)
_CQL = _all(_LOCOMOTION, _NORMALIZED, _THREE_LAYERS, {"optimizer": {"networks": {"policy": {"learning_rate": 3e-5}}}})
_REBRAC = _all(
    _LOCOMOTION,
    _THREE_LAYERS,
    {"optimizer": {"learning_rate": 1e-3, "batch_size": 1024}, "rebrac": {"critics": {"layer_norm": True}}},
)

TRAINING_PRESETS: Presets = {
    "bc": {"locomotion": _all(_LOCOMOTION, _NORMALIZED, {"network": {"bounded_mean": True}, "bc": {"squared_error": True}})},
    "iql": {
        "locomotion": _all(_IQL, {"data": {"rewards": {"scale": "return_range"}}}),
        "antmaze": _all(_IQL, {"data": {"rewards": {"shift": -1.0}}, "iql": {"beta": 10.0, "expectile": 0.9}}),
        "adroit": _all(_IQL, {"network": {"dropout": 0.1}, "iql": {"beta": 0.5}}),
    },
    "cql": {"locomotion": _all(_CQL, {"cql": {"alpha": 10.0}})},
    "cal_ql": {"locomotion": _all(_CQL, {"cal_ql": {"alpha": 10.0}})},
    "td3_bc": {"locomotion": _all(_LOCOMOTION, _NORMALIZED, {"td3_bc": {"alpha": 2.5}})},
    "rebrac": {
        "locomotion": _REBRAC,
        **{
            name: _all(_REBRAC, {"rebrac": {"policy_penalty": policy, "critic_penalty": critic}})
            for name, (policy, critic) in _REBRAC_PENALTIES.items()
        },
    },
    "awac": {"locomotion": _all(_LOCOMOTION, _NORMALIZED, _THREE_LAYERS, {"awac": {"temperature": 0.1}})},
    "dt": {"locomotion": _all(_TRANSFORMER, {"dt": {"return_scale": 1000.0}})},
}
"""Those of a training from a log (../docs/algorithms.md says whose they are)."""


_ONE_COPY = {"num_envs": 1, "total_steps": 1_000_000, "evaluation": {"episodes": 10}}
EXPERT_PRESETS: Presets = {
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
"""Those of an expert: of CleanRL for ppo and td3 (Huang et al. 2022), of Stable-Baselines3's zoo for sac."""

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


def listed(presets: Presets) -> Callable[[dict[str, Any]], None]:
    """Return what makes a form list the names of the presets."""

    def list_names(schema: dict[str, Any]) -> None:
        schema["enum"] = sorted({name for of_one in presets.values() for name in of_one})

    return list_names


def with_preset(values: dict[str, Any], model: type[BaseModel], presets: Presets) -> dict[str, Any]:
    """Return the values of `model` with their preset's below them, and without its name: so they mean the same once more.

    Raises:
        ValueError: There is no such preset.
    """
    algorithm, preset = values.get("algorithm", model.model_fields["algorithm"].default), values.get("preset")
    if not preset or not isinstance(preset, str):
        return values  # what is of the wrong kind is refused
    known = presets.get(algorithm, {}) if isinstance(algorithm, str) else {}
    if preset not in known:
        has = f"there are {', '.join(known)}" if known else "there is none"
        raise ValueError(f"of the algorithm {algorithm} there is no preset {preset!r}{did_you_mean(preset, known)}; {has}")
    return overlaid(known[preset], given_values(values, model, but={"preset"}) | {"algorithm": algorithm})


def with_expert_defaults(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Return the values of an expert with those of its preset, then of its algorithm, below them; ppo has the fields' own.

    Raises:
        ValueError: There is no such preset.
    """
    values = with_preset(values, model, EXPERT_PRESETS)
    if values.get("algorithm", "ppo") == "ppo":
        return values
    under = OFF_POLICY | ({"recording": OFF_POLICY_RECORDING} if values.get("recording") is not None else {})
    return overlaid(under, given_values(values, model) | {"algorithm": values["algorithm"]})
