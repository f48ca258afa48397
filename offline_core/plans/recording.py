"""Plan of a recording: some episodes are played in this process and written to a temporary folder."""

from __future__ import annotations

from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.environments.vector_env import spaces_of
from offline_core.plans.plan import Amount, MeasuredSample, Plan, peak_bytes
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.manifest import environment_for, find_policy
from offline_core.policies.policy import Policy
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.player import EpisodesToPlay, play
from offline_core.policies.recording.work import RAY_START_SECONDS
from offline_core.runtime.code_permission import remember_code
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.ray_session import local_cpus
from offline_core.runtime.torch_settings import torch_threads

SAMPLE_EPISODES = 16


def _seconds(config: RecordingConfig, playing: float, lanes: int) -> float:
    """See `RecordingConfig.num_recorders`."""
    here = config.num_recorders == "auto" and playing <= RAY_START_SECONDS
    return playing if here else RAY_START_SECONDS + playing / lanes


def plan_recording(config: RecordingConfig, *, policy: str, output: str) -> Plan:
    """Plan `record`.

    Raises:
        CheckpointError: there is no policy to play.
        ConfigError: the environment cannot be made, or does not fit the policy.
    """
    remember_code(config)
    policy, manifest = find_policy(policy)
    environment = environment_for(policy, manifest, config.environment)
    player = load_policy(policy, manifest)
    player.check_spaces(f"environment {environment.id}", spaces_of(environment))
    _played(player.eval(), environment, config, episodes=1)  # what is slow the first time is not measured
    sample = _played(player, environment, config, episodes=SAMPLE_EPISODES)
    episodes_to_play = config.episodes * config.rounds
    times = episodes_to_play / SAMPLE_EPISODES
    lanes = max(1, min(config.recorders, int(local_cpus() / config.cpus_per_recorder), local_cpus()))
    return Plan(
        reads=[Amount(uri=policy)],
        writes=[
            Amount(
                uri=output,
                files=max(config.recorders * config.rounds, round(sample.bytes * times) // config.files.max_bytes_per_file),
                episodes=episodes_to_play,
                steps=round(sample.steps * times),
                bytes=round(sample.bytes * times),
            )
        ],
        seconds=_seconds(config, sample.seconds * times, lanes),
        memory_bytes=peak_bytes(),
        measured=[
            f"{SAMPLE_EPISODES} episodes ({sample.steps:,} steps, {sample.bytes:,} bytes) were played and written to a "
            f"temporary folder in {sample.seconds:.2f} s",
            f"{lanes} recorders play side by side here; Ray and they take about {RAY_START_SECONDS:.0f} s to start",
        ],
    )


def _played(policy: Policy, environment: EnvironmentSpec, config: RecordingConfig, *, episodes: int) -> MeasuredSample:
    def write(writer: EpisodeWriter) -> None:
        for played in play(
            policy,
            environment,
            EpisodesToPlay(round=0, recorder=0, episodes=episodes),
            identity="sample",
            num_envs=config.envs_per_recorder,
            seed=config.seed or 0,
            explore=config.explore,
            keep_action_distribution=config.keep_action_distribution,
        ):
            writer.write(played)

    with torch_threads(1):  # as a recorder does it
        return MeasuredSample.of(write, config.format, config.files)
