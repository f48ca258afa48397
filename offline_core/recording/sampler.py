"""A stream of episodes, played as the consumer asks for them."""

from __future__ import annotations

import itertools
from collections.abc import Generator

from offline_core.episodes import Episode
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.manifest import PolicyManifest, environment_for, read_policy_manifest
from offline_core.recording.player import EpisodesToPlay, play
from offline_core.runtime.config import EnvironmentSpec

EPISODES_PER_ROUND = 16


def sample_episodes(
    policy: str, *, environment: EnvironmentSpec | None = None, seed: int = 0, manifest: PolicyManifest | None = None
) -> Generator[Episode]:
    """Play complete episodes of a policy without end, in this process and with exploration.

    Arguments:
        policy: URI of a checkpoint.
        environment: None: the one it was trained in.
        manifest: of the policy, if it was read before; the weights have to be the ones it names.

    Raises:
        CheckpointError: `policy` is not a checkpoint.
        ConfigError: the environment cannot be made.
    """
    manifest = manifest or read_policy_manifest(policy)
    player = load_policy(policy, manifest)
    environment = environment_for(policy, manifest, environment)
    for number in itertools.count():
        for episodes in play(
            player,
            environment,
            EpisodesToPlay(round=number, recorder=0, episodes=EPISODES_PER_ROUND),
            identity=manifest.fingerprint,
            num_envs=EPISODES_PER_ROUND,
            seed=seed,
            explore=True,
        ):
            yield from episodes
