"""The work of a fine-tuning: the networks of a training learn on, from play and from recordings."""

from __future__ import annotations

import contextlib

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.result_cache import STATES, BegunResult
from offline_core.data.environments.vector_env import make_vector_env
from offline_core.data.episodes import space_from_json
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.actor_critic import ActorCritic
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.algorithms.registry import algorithms
from offline_core.learning.checkpoints import load_networks
from offline_core.learning.config import DataConfig, RewardsConfig, TrainingConfig
from offline_core.learning.data_loader import make_data_loader
from offline_core.learning.fine_tuning.config import FineTuneConfig
from offline_core.learning.learner import Learner
from offline_core.learning.play import Play, learn_from_play, learned_steps
from offline_core.learning.result import FineTuneResult
from offline_core.learning.source import Recorded
from offline_core.learning.trainer_config import copies
from offline_core.learning.work import check_terminations
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy
from offline_core.runtime.torch_settings import isolated_torch


def learn_on(
    config: FineTuneConfig,
    training: str,
    manifest: PolicyManifest,
    networks_sha256: str,
    dataset: Dataset,
    begun: BegunResult,
) -> FineTuneResult:
    """Return what `fine_tune` returns, see there.

    Arguments:
        config: with the environment to play in.
        manifest: of the last policy of the training.
        networks_sha256: of all its networks.
    """
    environment = config.environment
    assert environment is not None
    policy = load_policy(Location.of(training).child("last").uri, manifest)
    networks, data = networks_of(training, manifest)
    source = _source(dataset, policy, networks.algorithm, data)
    env = make_vector_env(environment, copies(config))
    with contextlib.closing(env), isolated_torch(config.compute.threads):
        policy.check_spaces(f"environment {environment.id}", (env.single_observation_space, env.single_action_space))
        begun.start()
        learner = Learner(networks, config, total_steps=learned_steps(config, None))
        log = next(make_data_loader(source, data, networks.algorithm, streamed=False, seed=0).windows(0))
        learner.load(log)
        states = begun.folder.child(STATES)
        play = Play(networks, env, config, states=states, log=log, log_share=config.offline_share, rewards=data.rewards)

        def begins_as() -> None:
            networks.load_state_dict(load_networks(Location.of(training), networks_sha256))
            networks.policy.load_state_dict(policy.state_dict())  # learning may have gone a little further than `last`

        networks.policy.input_columns = policy.input_columns
        monitor, learned = learn_from_play(
            learner,
            play,
            begun,
            environment,
            target_return=config.evaluation.target_return,
            begins_as=begins_as,
            what="fine-tune",
            roll_back_after=config.roll_back_after,
        )
    return FineTuneResult(**learned, start_return=monitor.curve[0][1], rollbacks=monitor.rollbacks)


def networks_of(training: str, manifest: PolicyManifest) -> tuple[Networks, DataConfig]:
    """The networks of a training, with weights of their own, and how recorded steps are read for it.

    Arguments:
        manifest: of its last policy.

    Raises:
        ConfigError: the training cannot go on by play.
    """
    settings = manifest.operation.config
    name, data = settings.get("algorithm", TrainingConfig().algorithm), settings.get("data", {})
    if not isinstance(name, str):
        raise ConfigError(f"{training} is by an algorithm of your own; only named ones go on by play.")
    if own := sorted(option for option in ("connectors", "prelearner", "data_class", "source") if data.get(option)):
        raise ConfigError(f"{training} learned from steps that data.{own[0]} made; what is played does not go through that.")
    algorithm, network = algorithms()[name](**settings.get(name, {})), NetworkConfig(**settings.get("network", {}))
    seen, done = space_from_json(manifest.observation_space), space_from_json(manifest.action_space)
    networks = Networks(algorithm, seen, done, network)
    if not isinstance(networks.algorithm, ActorCritic):
        raise ConfigError(
            f"{training} is by {name}, which has no critics of single actions, so play would undo it: train by iql, awac, "
            "cal_ql, td3_bc or rebrac, or give its policy to 'offline train-expert' as initial_policy."
        )
    return networks, DataConfig(rewards=RewardsConfig(**data.get("rewards", {})), prelearners=0)


def _source(dataset: Dataset, policy: Policy, algorithm: Algorithm, data: DataConfig) -> Recorded:
    """The recorded steps.

    Raises:
        ConfigError: their spaces are not those of the policy, or an import lost all terminations.
    """
    source, uri = Recorded.of(dataset, data), dataset.location.uri
    try:
        policy.check_spaces(f"dataset {uri}", source.pipeline.spaces)
    except ConfigError as error:
        raise ConfigError(f"{uri} was recorded with other spaces than those of the training: {error}") from error
    check_terminations(source, algorithm, data)
    return source
