"""Go on by play from what was learned from recordings, with batches of fresh and of recorded steps."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from offline_core.data.datasets.dataset import Dataset, open_committed
from offline_core.data.datasets.folder_kind import folder_at
from offline_core.data.datasets.manifest import Parent
from offline_core.data.datasets.result_cache import RESULT_FILE, StoredResult, stored_result
from offline_core.data.environments.vector_env import make_vector_env
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.actor_critic import ActorCritic
from offline_core.learning.algorithms.build import make_algorithm
from offline_core.learning.algorithms.registry import algorithm_configs
from offline_core.learning.config import DataConfig, RewardsConfig, TrainingConfig
from offline_core.learning.experts.off_policy import OffPolicyLearner
from offline_core.learning.experts.run import BEST, ExpertRun
from offline_core.learning.fine_tuning.config import FineTuneConfig
from offline_core.learning.fine_tuning.result import FineTuneResult
from offline_core.learning.networks import FILE as NETWORKS_FILE
from offline_core.learning.networks import load_networks
from offline_core.learning.online.learner import OnlineLearner
from offline_core.learning.recorded import Recorded
from offline_core.learning.result import TrainingResult
from offline_core.learning.source import make_data_loader
from offline_core.learning.train import check_terminations
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import environment_for, fingerprint_of, read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.runtime.stage import DATASET, VERSION, Argument, Made, output, stage
from offline_core.runtime.torch_settings import isolated_torch

log = logging.getLogger(__name__)


@stage(
    "fine_tune",
    version=2,
    after="train",
    arguments=(
        Argument("training", "Folder of the training.", "runs/policy", "training"),
        DATASET,
        output("runs/fine-tuned", "Folder for the checkpoint."),
        VERSION,
    ),
    run_name="fine-tune {training} with {dataset}, seed {config.seed}",
    short=("environment", "total_steps", "target_return", "offline_share"),
    is_alone=True,
)
def fine_tune(
    config: FineTuneConfig, *, training: str, dataset: str, output: str, version: int | None = None
) -> Made[FineTuneResult]:
    """Go on by play from a training by iql, cal_ql, td3_bc and the like, with recorded and fresh steps.

    It begins with the networks that the training ended with (Ball et al. 2023, arXiv 2302.02948). The policy is evaluated
    first, and the best one is kept, so the result is never worse.

        <output>/best            the checkpoint with the best evaluation so far
        <output>/metrics.jsonl   one line an evaluation
        <output>/checkpoints     the last two states of an unfinished run, which the same call goes on from

    Arguments:
        training: URI of the folder of a finished training by iql, cql, cal_ql, awac, td3_bc, rebrac, sac or td3.
        dataset: URI of recordings, of the same spaces, that `offline_share` of each batch are drawn from.
        output: URI of a folder, created if need be.
        version: of the dataset, the latest if None.

    Raises:
        ConfigError: The training cannot go on by play, or its policy does not fit the environment; nothing is written.
        CorruptFileError: The networks of the training are not those that it wrote.
        DatasetNotFoundError, VersionNotFoundError: There is no such dataset.
        LearningError: The loss became NaN or infinite.
        BusyError: Another run is writing to `output`.
    """
    networks_sha256, learned = _networks(training), open_committed(dataset, version)
    last = Location.of(training).child("last").uri
    manifest = read_policy_manifest(last)
    environment = environment_for(last, manifest, config.environment)
    location = Location.of(output)
    networks = Parent(kind="files", uri=Location.of(training).child(NETWORKS_FILE).uri, fingerprint=networks_sha256[:16])
    begun = yield StoredResult(
        FineTuneResult,
        location,
        [manifest.parent_entry(last), networks, learned.parent_entry],
        fingerprint_of,
        outputs=lambda result: [result.checkpoint],
        config=config.model_copy(update={"environment": environment}),
        starts_itself=True,
        afterwards=lambda: run.states.clear(),
    )
    policy = load_policy(last, manifest)
    algorithm, data = _algorithm(training, policy, manifest.operation.config)
    source = _source(learned, policy, algorithm, data)
    env = make_vector_env(environment, config.copies)
    with contextlib.closing(env), isolated_torch(config.torch_threads):
        policy.check_spaces(environment.id, (env.single_observation_space, env.single_action_space))
        begun.start()
        online = OnlineLearner(
            algorithm,
            env,
            config.online,
            seed=config.seed,
            offline=next(make_data_loader(source, data, algorithm, streamed=False, seed=0).windows(0)),
            offline_share=config.offline_share,
            rewards=data.rewards,
        )
        algorithm.load_state_dict(load_networks(Location.of(training), networks_sha256))
        algorithm.policy.load_state_dict(policy.state_dict())  # learning may have gone a little further than `last`
        algorithm.policy.input_columns = policy.input_columns
        run = ExpertRun(
            config,
            OffPolicyLearner(online),
            location,
            environment=environment,
            target=config.target_return,
            operation=begun.operation,
            parents=begun.parents,
            identity=begun.identity,
            what="fine-tune",
            roll_back_after=config.roll_back_after,
        )
        run.run()
    result = FineTuneResult(
        checkpoint=location.child(BEST).uri,
        start_return=run.lines[0]["episode_return_mean"],
        metrics=run.best,
        target_return=run.target,
        reached_target=run.reached_target,
        env_steps=online.env_steps,
        updates=online.updates,
        rollbacks=run.rollbacks,
        curve=[(int(line["env_steps"]), line["episode_return_mean"]) for line in run.lines],
        seconds=run.seconds,
    )
    gained, steps = result.mean_return - result.start_return, f"{result.env_steps:,}"
    log.info("Fine-tuned %s: %.1f, %.1f more after %s steps", result.checkpoint, result.mean_return, gained, steps)
    return result


def _networks(training: str) -> str:
    """The hash of the networks of a finished training.

    Raises:
        ConfigError: there is none in the folder.
    """
    found = stored_result(Location.of(training).child(RESULT_FILE), TrainingResult)
    if found is None:
        folder = folder_at(training)
        given = "" if folder is None or folder.what == "the folder of a training" else f"{folder.what}, and "
        raise ConfigError(f"{training} is {given}not the folder of a finished training; give the output of 'offline train'.")
    if found.networks_sha256 is None:
        raise ConfigError(f"{training} was made by an older version, which kept no critics: train again into another folder.")
    return found.networks_sha256


def _algorithm(training: str, policy: Policy, settings: dict[str, Any]) -> tuple[ActorCritic, DataConfig]:
    """The algorithm of the training, with weights of its own, and how recorded steps are read for it.

    Arguments:
        settings: of the training, without those at their defaults.

    Raises:
        ConfigError: it cannot go on by play.
    """
    name, data = settings.get("algorithm", TrainingConfig().algorithm), settings.get("data", {})
    if not isinstance(name, str):
        raise ConfigError(f"{training} is by an algorithm of your own; only named ones go on by play.")
    if own := sorted(each for each in ("connectors", "prelearner", "data_class", "source") if data.get(each)):
        raise ConfigError(f"{training} learned from steps that data.{own[0]} made; what is played does not go through that.")
    parameters = algorithm_configs()[name](**settings.get(name, {}))
    spaces = policy.observation_space, policy.action_space
    algorithm = make_algorithm(name, *spaces, NetworkConfig(**settings.get("network", {})), parameters)
    if not isinstance(algorithm, ActorCritic):
        raise ConfigError(
            f"{training} is by {name}, which has no critics of single actions, so play would undo it: train by iql, awac, "
            "cal_ql, td3_bc or rebrac, or give its policy to 'offline train-expert' as initial_policy."
        )
    return algorithm, DataConfig(rewards=RewardsConfig(**data.get("rewards", {})), prelearners=0)


def _source(dataset: Dataset, policy: Policy, algorithm: ActorCritic, data: DataConfig) -> Recorded:
    """The recorded steps.

    Raises:
        ConfigError: their spaces are not those of the policy, or an import lost all terminations.
    """
    source, uri = Recorded.of(dataset, data), dataset.location.uri
    try:
        policy.check_spaces(uri, source.pipeline.spaces)
    except ConfigError as error:
        raise ConfigError(f"{uri} was recorded with other spaces than those of the training: {error}") from error
    check_terminations(source, algorithm, data)
    return source
