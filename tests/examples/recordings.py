"""A real recording for examples, made without Ray."""

from __future__ import annotations

from pathlib import Path

from offline_core.data.episodes import Episode
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.recording.player import EpisodesToPlay, play
from offline_core.runtime.config import EnvironmentSpec
from tests.data.datasets.factories import write_dataset


def record(policy: str, folder: Path, *, episodes: int = 20) -> list[Episode]:
    """The episodes of CartPole that the policy plays at random, in the order in which they lie in the dataset at `folder`."""
    played = play(
        load_policy(policy),
        EnvironmentSpec(id="CartPole-v1"),
        EpisodesToPlay(round=0, recorder=0, episodes=episodes),
        identity="example",
        num_envs=4,
        seed=0,
        explore=True,
    )
    found = [episode for chunk in played for episode in chunk]
    write_dataset(folder, found, batch=7)
    return found
