"""A stream of episodes that are played while they are asked for."""

from __future__ import annotations

import itertools
from collections.abc import Generator

from offline_core.code_permission import recorded_environment
from offline_core.config import EnvironmentSpec
from offline_core.episodes import Episode
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import PolicyManifest, load_policy, read_policy_manifest
from offline_core.recording.player import Assignment, play

EPISODES_PER_ROUND = 16


def sample_episodes(
    policy: str, *, environment: EnvironmentSpec | None = None, seed: int = 0, manifest: PolicyManifest | None = None
) -> Generator[Episode]:
    """Complete episodes of a policy without end, played in this process with exploration.

    Arguments:
        policy: URI of a checkpoint.
        environment: the one it was trained in if None.
        manifest: what was read of the policy before; then it is that very one.

    Raises:
        CheckpointError: there is no policy to play.
        ConfigError: the environment cannot be made.
    """
    manifest = manifest or read_policy_manifest(policy)
    player = load_policy(policy, manifest)
    environment = environment or recorded_environment(manifest.environment, file=policy)
    if environment is None:
        raise ConfigError(f"Policy {policy} does not say where it was trained; name the environment to sample in.")
    for number in itertools.count():
        for episodes in play(
            player,
            environment,
            Assignment(round=number, recorder=0, episodes=EPISODES_PER_ROUND),
            identity=manifest.fingerprint,
            num_envs=EPISODES_PER_ROUND,
            seed=seed,
            explore=True,
        ):
            yield from episodes
