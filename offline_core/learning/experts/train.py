"""Train an expert: play, learn and evaluate until the policy is good enough."""

from __future__ import annotations

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Parent
from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.store.location import Location
from offline_core.errors import DatasetNotFoundError, VersionNotFoundError
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.result import ExpertResult
from offline_core.policies.manifest import find_policy, fingerprint_of
from offline_core.runtime.stage import ENVIRONMENT, Made, output, stage


@stage(
    "train_expert",
    version=6,
    arguments=(output("runs/expert", "Folder for the checkpoint."), ENVIRONMENT),
    positional=("environment",),
    run_name="train-expert {config.algorithm} in {config.environment.id}, seed {config.seed}",
    short=("algorithm", "preset", "environment.id", "total_steps", "evaluation.target_return"),
    has_metrics=True,
    is_alone=True,
)
def train_expert(config: ExpertConfig, *, output: str) -> Made[ExpertResult]:
    """Train an expert with PPO, SAC or TD3 until it reaches a target return.

    It ends when the mean return of an evaluation reaches the target, or the steps are used up. An `initial_policy` is
    evaluated first, so the result is never worse. The same `config` makes the same policy, to the bit, on the same machine
    and number of Torch threads.

        <output>/best               the checkpoint with the best evaluation so far, replaced at each improvement
        <output>/snapshots/<return> the first policies that reached `config.snapshots_at_returns`
        <output>/recording          a dataset of episodes played during training, if `config.recording` is set
        <output>/metrics.jsonl      one line an iteration, and one an evaluation
        <output>/checkpoints        the last two states of an unfinished training
        <output>/result.json        the result, which the same call reuses

    A training that was killed goes on from its last state when it is called again. Environments cannot be stored, so new
    episodes begin there, and the policy differs from that of an unbroken training.

    Raises:
        ConfigError: the environment is unknown or not installed, its spaces are not supported, or `initial_policy` has others;
            nothing is written.
        CheckpointError: `initial_policy` is not a checkpoint, or was replaced meanwhile.
        StorageError: `output` cannot be written; found before training.
        BusyError: another run is writing to `output`.
        LearningError: the loss became NaN or infinite.
    """
    initial, parents = None, list[Parent]()
    if config.initial_policy is not None:
        uri, initial = find_policy(config.initial_policy)
        config, parents = config.model_copy(update={"initial_policy": uri}), [initial.parent_entry(uri)]
    begun = yield StoredResult(
        ExpertResult,
        Location.of(output),
        parents,
        _fingerprint,
        outputs=lambda result: [result.checkpoint, *result.snapshots.values(), *_recorded(result)],
        config=config,
        exclude={"initial_policy", *config.unused},
        starts_itself=True,
        has_states=True,
    )
    from offline_core.learning.experts.work import learn_by_play  # here, for what is reused needs no Torch

    return learn_by_play(config, initial, begun)


def _recorded(result: ExpertResult) -> list[str]:
    return [] if result.recording is None else [f"{result.recording.uri}@{result.recording.version}"]


def _fingerprint(name: str) -> str | None:
    """Return the fingerprint of a checkpoint, or of the version of the recording."""
    uri, at, version = name.rpartition("@")
    if not at or not version.isdigit():
        return fingerprint_of(name)
    try:
        return open_dataset(uri, int(version)).manifest.identity  # which forgetting leaves alone
    except (DatasetNotFoundError, VersionNotFoundError):
        return None
