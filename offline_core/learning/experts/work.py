"""The work of training an expert: it plays, learns from that, and is recorded meanwhile if it is to be."""

from __future__ import annotations

import contextlib

from offline_core.data.datasets.commit import prepared
from offline_core.data.datasets.result_cache import BegunResult
from offline_core.data.datasets.writer import WrittenFiles
from offline_core.data.environments.vector_env import make_vector_env, reward_threshold
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.recording import RECORDING, commit_recorded, recorder_of
from offline_core.learning.experts.result import ExpertResult
from offline_core.learning.experts.run import BEST, ExpertRun, make_learner, snapshot_name
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.rollouts.tapped_env import TappedEnv
from offline_core.runtime.torch_settings import isolated_torch


def learn_by_play(config: ExpertConfig, initial: PolicyManifest | None, begun: BegunResult) -> ExpertResult:
    """Return what `train_expert` returns, see there.

    Arguments:
        initial: the manifest of `initial_policy`, if there is one.
    """
    env = make_vector_env(config.environment, config.copies)
    if config.recording is not None and config.recording.replay:
        env = TappedEnv(env)
    with contextlib.closing(env), isolated_torch(config.torch_threads), contextlib.ExitStack() as stack:
        learner = make_learner(config, env, initial)
        begun.start()
        place_of_recording = begun.folder.child(RECORDING).uri
        root = None if config.recording is None else stack.enter_context(prepared(place_of_recording))
        with recorder_of(learner.policy, env, config, root, begun.identity) as recorder:
            run = ExpertRun(
                config,
                learner,
                begun.folder,
                environment=config.environment,
                target=reward_threshold(config.environment) if config.target_return is None else config.target_return,
                operation=begun.operation,
                parents=list(begun.parents),
                identity=begun.identity,
                recorder=recorder,
                explore=config.evaluation_actions == "sampled",
            )
            run.run()
        recording = None
        if recorder is not None and recorder.files and config.recording is not None:
            written = WrittenFiles(config.recording.format, recorder.files, recorder.statistics)
            recording = commit_recorded(written, place_of_recording, config, begun.operation, list(begun.parents))
    return ExpertResult(
        checkpoint=begun.folder.child(BEST).uri,
        reached_target=run.reached_target,
        target_return=run.target,
        actions=config.evaluation_actions,
        metrics=run.best,
        env_steps=learner.env_steps,
        updates=learner.updates,
        recording=recording,
        snapshots={reached: begun.folder.child(snapshot_name(reached)).uri for reached in sorted(run.snapshots)},
        seconds=run.seconds,
        curve=[(int(line["env_steps"]), line["episode_return_mean"]) for line in run.lines],
    )
