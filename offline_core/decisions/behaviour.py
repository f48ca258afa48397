"""The model of what acted: fitted where the log has no probabilities, and how far it can be believed."""

from __future__ import annotations

import contextlib

import numpy as np
import torch
from torch.nn import functional

from offline_core.datasets.dataset import Dataset, DatasetRef, open_dataset
from offline_core.episodes import columns
from offline_core.estimation.logged import has_probabilities, step_batches
from offline_core.estimation.observations import Observations, distribution_inputs
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train_policy
from offline_core.policies.categorical import CategoricalHead
from offline_core.policies.policy import Policy
from offline_core.runtime.config import parse

TENTHS = 10
PATIENCE = 5
ENOUGH_STEPS = 200_000


def model_of_behaviour(selecting: DatasetRef, judging: DatasetRef, output: str, *, seed: int) -> str | None:
    """Checkpoint of a clone of the selecting side; None: the log has the probabilities of its actions.

    The clone is the one with the lowest loss on the judging side's actions, whose rewards it never sees.
    """
    if has_probabilities(open_dataset(selecting.uri, selecting.version)):
        return None
    config = parse(
        TrainingConfig,
        {
            "algorithm": "bc",
            "seed": seed,
            "network": {"hidden_sizes": [64, 64], "normalize_observations": True},
            "optimizer": {"batch_size": 512, "max_epochs": 200, "updates_per_iteration": 100, "max_updates": 20_000},
            "evaluation": {"play": False, "held_out": judging.uri, "patience": PATIENCE},
        },
    )
    return train_policy(config, dataset=selecting.uri, version=selecting.version, output=output).checkpoint


@torch.no_grad()
def reliability(behaviour: Policy, dataset: Dataset) -> tuple[list[tuple[float, float, int]], float | None]:
    """What a model of Discrete actions says beside what was done; nothing of other actions."""
    head = behaviour.head
    if not (isinstance(head, CategoricalHead) and len(head.sizes) == 1):
        return [], None
    said, done, steps = [], [], 0
    with contextlib.closing(step_batches(dataset, behaviour, by_column=False, needs_next_obs=False)) as batches:
        for batch in batches:
            chances = distribution_inputs(behaviour, Observations(batch, behaviour.observation_space)).softmax(dim=1)
            taken = torch.from_numpy(batch[columns.ACTIONS].reshape(-1)).long() - head.starts
            said.append(chances.flatten())
            done.append(functional.one_hot(taken, head.sizes[0]).flatten())
            if (steps := steps + len(taken)) >= ENOUGH_STEPS:
                break
    return calibration_of(torch.cat(said).numpy(), torch.cat(done).numpy())


def calibration_of(said: np.ndarray, done: np.ndarray) -> tuple[list[tuple[float, float, int]], float]:
    """(by tenths of probability: what was said, what was done, actions) and the expected calibration error.

    Guo et al. 2017 (arXiv 1706.04599), of all actions and not of the most likely one alone.

    Arguments:
        said: (N,) probability of each action that could be taken.
        done: (N,) 1 where it was taken.
    """
    tenth = np.minimum((said * TENTHS).astype(int), TENTHS - 1)
    parts = [(said[tenth == number], done[tenth == number]) for number in range(TENTHS)]
    found = [(float(said.mean()), float(done.mean()), len(said)) for said, done in parts if len(said)]
    return found, sum(abs(mean - share) * count for mean, share, count in found) / len(said)
