"""Models of what acted: of a log without probabilities, or of another dataset whose behaviour is a candidate; and how far they
can be believed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import torch

from offline_core.data.datasets.dataset import Dataset, DatasetRef
from offline_core.data.episodes import columns
from offline_core.data.episodes.spaces import has_box
from offline_core.errors import ConfigError
from offline_core.judging.estimation.logged import recorded_logs, step_batches
from offline_core.judging.estimation.observations import Observations, tensors_of
from offline_core.judging.estimation.q_function import is_listed, taken
from offline_core.judging.estimation.target import TargetPolicy, distribution_inputs
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.runtime.config import parse
from offline_core.runtime.progress import part_of_work

NETWORK = NetworkConfig(hidden_sizes=[64, 64], normalize_observations=True)
TENTHS = 10
PATIENCE = 5
UPDATES_BETWEEN_LOOKS = 100
RESIDENT_BYTES = 64 * 2**20
"""Largest log that a clone is fitted to in memory; larger ones are streamed."""
HELD_OUT_BYTES = 16 * 2**20
"""Of what a clone is held against at each look: a look at millions of steps would take longer than the updates before it."""
ENOUGH_STEPS = 200_000
ENOUGH_EPISODES = 20
DETERMINISTIC_CHANCE = 0.99
DETERMINISTIC_SHARE = 0.95
DETERMINISTIC_FACTOR = 20.0
"""How many times narrower than all actions a component of those in one state is, where the behaviour has no chance in it."""


def model_of_behaviour(selecting: DatasetRef, judging: DatasetRef, output: str, *, updates: int, seed: int) -> str:
    """Checkpoint of a clone of the selecting side.

    The clone is the one with the lowest loss on the judging side's actions, whose rewards it never sees.

    Arguments:
        updates: at most.
    """
    config = parse(
        TrainingConfig,
        {
            "algorithm": "bc",
            "seed": seed,
            "network": NETWORK.model_dump(exclude_unset=True),
            "optimizer": {
                "batch_size": 512,
                "max_updates": updates,
                "updates_per_iteration": min(updates, UPDATES_BETWEEN_LOOKS),
            },
            "data": {"resident_bytes": RESIDENT_BYTES, "prelearners": 0},
            "evaluation": {"play": False, "held_out": judging.uri, "held_out_bytes": HELD_OUT_BYTES, "patience": PATIENCE},
        },
    )
    with part_of_work("clone of what acted"):
        return train(config, dataset=selecting.uri, version=selecting.version, output=output).checkpoint


def policy_for(recording: Dataset, clone: str | None) -> Policy:
    """The policy that stands for the behaviour of a dataset; before it is fitted, one of the same spaces, columns and layers.

    Arguments:
        clone: checkpoint of it; None: it is not fitted yet.

    Raises:
        ConfigError: The dataset does not say its spaces.
    """
    if clone is not None:
        return load_policy(clone)
    observation_space, action_space = recording.spaces
    if observation_space is None or action_space is None:
        raise ConfigError(
            f"{recording.location.uri} does not say its spaces, so what is an action is unknown. Import it first."
        )
    policy = Policy(observation_space, action_space, NETWORK)
    policy.input_columns = recording.manifest.input_columns
    return policy


@dataclass(frozen=True, slots=True)
class Examined:
    """What a model says of actions that it was not fitted to, beside what was recorded of them."""

    calibration: list[tuple[float, float, int]]
    error: float | None
    """Expected calibration error; None: the actions are no list."""
    steps: int
    """Steps that were looked at."""
    is_deterministic: bool
    """What acted did the same in the same state; of a list of actions, by the model or by what was recorded."""
    excess: float | None
    """How far the mean log-probability is above the recorded one, in standard errors; None if none was recorded."""
    excess_nats: float


@torch.no_grad()
def examine(policy: TargetPolicy, dataset: Dataset, *, is_model: bool = True, recorded: bool) -> Examined:
    """Hold a model of the behaviour against episodes that it was not fitted to, the first so many of them.

    No model can find actions more probable, on average, than the policy that drew them (Gibbs' inequality).

    Arguments:
        is_model: the policy is one. False: it is of the same spaces, and what was recorded alone is looked at.
        recorded: `action_logp` is there; where the policy is no model it has to be.
    """
    head, listed = policy.head, is_model and is_listed(policy.head)
    said, done, logs, excess, acted, steps = [], [], [], [], [], 0
    with contextlib.closing(step_batches(dataset, [policy], by_column=recorded, needs_next_obs=False)) as batches:
        for batch in batches:
            own = recorded_logs(batch, dataset.location.uri) if recorded else None
            acted.append(batch.leaves(columns.ACTIONS))
            if is_model:
                inputs = distribution_inputs(policy, Observations(batch, policy.observation_space))
                actions = tensors_of(batch, columns.ACTIONS, policy.action_space)
                model_logs = head.log_prob(inputs, actions).double().numpy()
                if own is not None:
                    excess.append(np.add.reduceat(model_logs - own, batch.offsets[:-1]) / batch.lengths)
                own = np.maximum(model_logs, own) if listed and own is not None else model_logs
                if listed:
                    said.append(inputs.softmax(dim=1).flatten())
                    done.append(taken(head, actions).double().flatten())
            assert own is not None
            logs.append(own)
            if (steps := steps + len(own)) >= ENOUGH_STEPS:
                break
    calibration, error = calibration_of(torch.cat(said).numpy(), torch.cat(done).numpy()) if said else ([], None)
    excesses = np.concatenate(excess) if excess else np.zeros(1)
    deviation = float(excesses.std(ddof=1) / len(excesses) ** 0.5) if len(excesses) >= ENOUGH_EPISODES else np.inf
    above = float(excesses.mean()) / max(deviation, 1e-12) if excess else None
    by_path = {path: np.concatenate([leaves[path] for leaves in acted]) for path in acted[0]}
    is_certain = is_deterministic(np.concatenate(logs), by_path, listed=not has_box(policy.action_space))
    return Examined(calibration, error, steps, is_certain, above, float(excesses.mean()))


def is_deterministic(log_behaviour: np.ndarray, actions: dict[str, np.ndarray], *, listed: bool) -> bool:
    """Whether the behaviour, as a model has it, did the same in the same state.

    Arguments:
        log_behaviour: (N,) of the actions taken.
        actions: (N, …) by path.
        listed: the actions are a list, and not numbers.
    """
    if listed:
        return float((np.exp(log_behaviour) > DETERMINISTIC_CHANCE).mean()) >= DETERMINISTIC_SHARE
    numbers = np.concatenate([leaf.reshape(len(leaf), -1).astype(np.float64) for leaf in actions.values()], axis=1)
    spread = numbers.std(axis=0)
    if not spread.any() or not log_behaviour.any():
        return True
    spread = spread[spread > 0]
    widest = -np.log(spread).sum() - 0.5 * len(spread) * np.log(2 * np.pi * np.e)  # mean log density, if states said nothing
    return bool(np.median(log_behaviour) - widest > len(spread) * np.log(DETERMINISTIC_FACTOR))


def calibration_of(said: np.ndarray, done: np.ndarray) -> tuple[list[tuple[float, float, int]], float]:
    """(by tenths of probability: what was said, what was done, actions) and the expected calibration error.

    Guo et al. 2017 (arXiv 1706.04599), of all actions and not of the most likely one alone.

    Arguments:
        said: (N,) probability of each action that could be taken.
        done: (N,) 1 where it was taken.
    """
    tenth = np.minimum((said * TENTHS).astype(int), TENTHS - 1)
    parts = [(said[tenth == number], done[tenth == number]) for number in range(TENTHS)]
    points = [(float(said.mean()), float(done.mean()), len(said)) for said, done in parts if len(said)]
    return points, sum(abs(mean - share) * count for mean, share, count in points) / len(said)
