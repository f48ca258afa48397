"""What benchmarks/reference/d3rlpy_losses.py wrote, as weights and batches of our algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from offline_core.learning.algorithms.critics import Critics
from offline_core.learning.steps import Batch
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

FOLDER = Path(__file__).parents[2] / "data" / "d3rlpy"
OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (11,))
ACTIONS, CHOICES = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(4)
NETWORK = NetworkConfig(hidden_sizes=[32, 16], activation="relu")
BOUNDED = NetworkConfig(hidden_sizes=[32, 16], activation="relu", bounded_mean=True)
GAMMA = 0.9

Tensors = dict[str, Tensor]


def reference(name: str) -> Tensors:
    return safetensors.torch.load_file(FOLDER / f"{name}.safetensors")


def below(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def batch_of(found: Tensors) -> Batch:
    """The columns that our algorithms take, of several steps each."""
    batch = below(found, "batch.")
    discounts = GAMMA ** batch["intervals"] * (1 - batch["terminals"])
    discrete = batch["actions"].shape[1] == 1
    return {
        "obs": batch["observations"],
        "new_obs": batch["next_observations"],
        "actions": batch["actions"].long().squeeze(1) if discrete else batch["actions"],
        "n_step_rewards": batch["rewards"].squeeze(1),
        "n_step_discounts": discounts.squeeze(1),
        "new_actions": batch["next_actions"],
        "has_new_actions": torch.ones(len(discounts), dtype=torch.bool),
        "returns_to_go": batch["returns_to_go"].squeeze(1),
    }


def load_network(hidden: nn.Module, outputs: dict[str, nn.Module], weights: Tensors) -> None:
    """Load hidden layers, and the linear outputs by d3rlpy's names for them."""
    hidden.load_state_dict(below(weights, "_encoder._layers."))
    for name, linear in outputs.items():
        linear.load_state_dict(below(weights, f"{name}."))


@torch.no_grad()
def load_critics(critics: Critics, weights: Tensors) -> None:
    for number in range(2):
        own = below(weights, f"{number}.")
        normed = bool(critics.scales)
        names = [f"_encoder._layers.{layer * (3 if normed else 2)}" for layer in range(2)] + ["_fc"]
        for layer, name in enumerate(names):
            critics.weights[layer][number] = own[f"{name}.weight"].T
            critics.biases[layer][number] = own[f"{name}.bias"]
        for layer in range(2) if normed else ():
            critics.scales[layer][number] = own[f"_encoder._layers.{layer * 3 + 2}.weight"]
            critics.shifts[layer][number] = own[f"_encoder._layers.{layer * 3 + 2}.bias"]


def load_actor_critic(networks: Any, found: Tensors, *outputs: str) -> None:
    """Load policy and critics; `outputs` are those of the policy, by d3rlpy's names: mean, and standard deviation."""
    head, weights = networks.policy.head, below(found, "weights.")
    linears = dict(zip(outputs, (head.mean, head.log_std), strict=False))
    load_network(networks.policy.hidden, linears, below(weights, "policy."))
    load_critics(networks.critics, below(weights, "q_funcs."))
    load_critics(networks.targets, below(weights, "targ_q_funcs."))


def load_log_std(networks: Any, found: Tensors, low: float, high: float) -> None:
    """That of all states, which d3rlpy keeps between these by a sigmoid, and we by clamping."""
    networks.policy.head.log_std.data = low + (high - low) * found["weights.policy._logstd"].squeeze(0).sigmoid()


def hidden_of(policy: Policy, *, imitator: bool = False) -> nn.Module:
    assert isinstance(policy.hidden, nn.Sequential)
    if policy.network.share_layers:
        return nn.Sequential(*policy.hidden[1:-1])
    return policy.hidden.get_submodule("1.second" if imitator else "1.first")
