"""The log of the benchmark: shifts of a service desk as a CSV, with the faults that exports have, and what is true of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.decisions.simulators import Queue, play

SHIFTS = 3_000
TWICE = 40
"""Shifts that a second export has again."""
SPEEDS = ("slow", "normal", "fast")


def write(file: Path, gamma: float, seed: int = 0) -> float:
    """Write the CSV: rows in no order, some shifts twice; return the behaviour's mean discounted return."""
    rng, world = np.random.default_rng(seed), Queue()
    behaviour = world.controller(np.random.default_rng(seed), 0.6)
    episodes = play(world, behaviour, SHIFTS, seed=seed)
    table = pl.concat(
        pl.DataFrame(
            {
                "shift": number,
                "minute": np.arange(len(episode)),
                "waiting": np.round((episode.observations[:-1, 0] + 1) * 5).astype(int),
                "rush": np.where(episode.observations[:-1, 1] > 0, "yes", "no"),
                "speed": np.array(SPEEDS)[episode.actions],
                "probability": np.exp(episode.extras["action_logp"]),
                "profit": episode.get_rewards().astype(float),
            }
        )
        for number, episode in enumerate(episodes)
    )
    table = pl.concat([table, table.filter(pl.col("shift") < TWICE)])
    table[rng.permutation(len(table))].write_csv(file)
    discounts = gamma ** np.arange(world.steps)
    return float(np.mean([discounts @ episode.get_rewards() for episode in episodes]))


def value_of(chances: list[list[list[float]]], gamma: float, episodes: int = 20_000, seed: int = 1) -> float:
    """The mean discounted return of a policy.

    Arguments:
        chances: by rush (no, yes), then by length of the queue, the probability of each speed.
    """
    rng, world, total = np.random.default_rng(seed), Queue(), np.zeros(episodes)
    limits = np.cumsum(chances, axis=-1)
    world.reset(episodes, rng)
    for minute in range(world.steps):
        speeds = (rng.random((episodes, 1)) > limits[world.busy.astype(int), world.length.astype(int), :-1]).sum(axis=1)
        _, rewards, _ = world.step(speeds, rng)
        total += gamma**minute * rewards
    return float(total.mean())
