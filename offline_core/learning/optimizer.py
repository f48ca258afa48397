"""The optimiser of a training: which network learns at which rate, and what a state keeps of it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.state import below
from offline_core.learning.trainer_config import AdamConfig, Schedule


def parameter_groups(networks: Networks, config: AdamConfig) -> list[dict[str, Any]]:
    """Return what the optimizer learns: one group of parameters for each network with a rate of its own, one for the rest.

    Raises:
        ConfigError: The algorithm has no such network.
    """
    groups: dict[str, list[torch.nn.Parameter]] = {}
    names = dict.fromkeys(network_of(name) for name, parameter in networks.named_parameters() if parameter.requires_grad)
    if unknown := sorted(config.networks.keys() - names):
        name = type(networks.algorithm).__name__
        raise ConfigError(f"networks names {', '.join(unknown)}; the networks of {name} are {', '.join(names)}.")
    for name, parameter in networks.named_parameters():
        if parameter.requires_grad:
            network = network_of(name)
            groups.setdefault(network if network in config.networks else "", []).append(parameter)
    return [{"params": parameters, "network": network} for network, parameters in groups.items()]


def network_of(parameter: str) -> str:
    """Return the name of the network that a parameter belongs to: policy, value, critics, …"""
    return "value" if parameter.startswith("policy.value") else parameter.partition(".")[0]


def learning_rate(config: AdamConfig, network: str, update: int, done: float) -> float:
    """Return the rate of a network in this update, counted from 0, when this share of the training is done."""
    own = config.networks.get(network)
    rate = config.learning_rate if own is None or own.learning_rate is None else own.learning_rate
    schedule = config.schedule if own is None or own.schedule is None else own.schedule
    warm = min(1.0, (update + 1) / (config.warmup_updates + 1))
    return rate * warm * share_of_rate(schedule, done)


def share_of_rate(schedule: Schedule, done: float) -> float:
    """Return what a schedule has left of a learning rate when this share of the training is done."""
    if schedule == "constant":
        return 1.0
    if schedule == "linear":
        return 1 - min(1.0, done)
    return 0.5 * (1 - math.cos(math.pi * (1 - min(1.0, done))))


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return what an optimiser remembers of its parameters, as `optimizer.<number>.<name>`."""
    entries = optimizer.state_dict()["state"].items()
    return {f"optimizer.{number}.{name}": torch.as_tensor(value) for number, entry in entries for name, value in entry.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Tensor]) -> None:
    """Restore what `optimizer_tensors` returned; other tensors of `state` are ignored."""
    entries: dict[int, dict[str, Tensor]] = {}
    for key, value in below(state, "optimizer.").items():
        number, name = key.split(".", 1)
        entries.setdefault(int(number), {})[name] = value.clone()  # Torch would write into it
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})
