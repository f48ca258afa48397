"""The work of training an expert: it plays, learns from that, and is recorded meanwhile if it is to be."""

from __future__ import annotations

import contextlib

from offline_core.data.datasets.result_cache import STATES, BegunResult
from offline_core.data.environments.vector_env import Spaces, make_vector_env
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.recording import recorder_of
from offline_core.learning.learner import Learner
from offline_core.learning.monitor import snapshot_name
from offline_core.learning.play import Play, check_single_steps, learn_from_play, learned_steps
from offline_core.learning.result import ExpertResult
from offline_core.learning.trainer_config import copies
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.initial import begin_as, check_network
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_settings import isolated_torch


def learn_by_play(config: ExpertConfig, manifest: PolicyManifest | None, begun: BegunResult) -> ExpertResult:
    """Return what `train_expert` returns, see there.

    Arguments:
        manifest: of `initial_policy`, if there is one.
    """
    env = make_vector_env(config.environment, copies(config))
    with contextlib.closing(env), isolated_torch(config.compute.threads):
        networks, initial = new_expert(config, (env.single_observation_space, env.single_action_space), manifest)
        learner = Learner(networks, config, total_steps=learned_steps(config, networks.algorithm.epochs_per_rollout))
        play = Play(networks, env, config, states=begun.folder.child(STATES))
        begun.start()
        with recorder_of(networks.policy, env, config, begun) as play.recorder:
            monitor, learned = learn_from_play(
                learner,
                play,
                begun,
                config.environment,
                target_return=config.evaluation.target_in(config.environment),
                begins_as=None if initial is None else lambda: begin_as(networks.policy, initial),
                what="train expert",
                snapshots_at_returns=config.snapshots_at_returns,
            )
    snapshots = {reached: begun.folder.child(snapshot_name(reached)).uri for reached in sorted(monitor.snapshots)}
    return ExpertResult(**learned, recording=play.recorder.dataset, snapshots=snapshots)


def new_expert(config: ExpertConfig, spaces: Spaces, manifest: PolicyManifest | None) -> tuple[Networks, Policy | None]:
    """Return networks with random weights, and the initial policy whose weights it is to begin with.

    `initial_policy` keeps its network and its spaces, whose bounds are the units of its actions.

    Raises:
        CheckpointError: `initial_policy` is not a checkpoint, or not that of the manifest any more.
        ConfigError: It does not fit the environment or `network`, or the algorithm cannot act there or go on from it.
    """
    seed = derive_seed(config.seed, "weights")
    if config.initial_policy is None:
        return Networks(config.chosen, *spaces, config.network, seed=seed), None
    if config.algorithm != "ppo":
        raise ConfigError(
            f"{config.algorithm} learns from nothing: a checkpoint has no critics, and new ones would undo it. Set "
            "initial_policy to None, algorithm to ppo, or go on from a training with 'offline fine-tune'."
        )
    initial = load_policy(config.initial_policy, manifest)
    check_single_steps(initial.network)
    initial.check_spaces(f"environment {config.environment.id}", spaces)
    if config.network != NetworkConfig():
        check_network(config.initial_policy, initial.network, config.network)
    networks = Networks(config.ppo, initial.observation_space, initial.action_space, initial.network, seed=seed)
    networks.has_new_values = not initial.value_function
    networks.policy.input_columns = initial.input_columns
    return networks, initial
