"""Flow: the whole chain, from nothing to a policy that was learned from recordings alone."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prefect import flow

from flows.seeds import seed_of
from offline_core.evaluation.config import EvaluationConfig
from offline_core.experts.config import ExpertConfig
from offline_core.learning.config import TrainingConfig
from offline_core.pruning.config import PruningConfig
from offline_core.quality.config import QualityConfig
from offline_core.ray_session import ray_scope
from offline_core.recording.config import RecordingConfig
from offline_core.storage.location import Location
from tasks.check_dataset import check_dataset
from tasks.crash import crashing
from tasks.evaluate_policy import evaluate_policy
from tasks.prune_dataset import prune_dataset
from tasks.record_episodes import record_episodes
from tasks.summarize_chain import ExpertToPolicyResult, summarize_chain
from tasks.train_expert import train_expert
from tasks.train_policy import train_policy


@flow(name="expert-to-policy", flow_run_name="expert-to-policy-{expert.environment.id}-{seed}")
def expert_to_policy(
    root: str = "runs/demo",
    seed: int | None = 0,
    expert: ExpertConfig = ExpertConfig(),
    recording: RecordingConfig = RecordingConfig(),
    pruning: PruningConfig = PruningConfig(),
    quality: QualityConfig = QualityConfig(),
    training: TrainingConfig = TrainingConfig(),
    evaluation: EvaluationConfig = EvaluationConfig(),
) -> ExpertToPolicyResult:
    """Trains an expert, records it, prunes and checks the recording, clones a policy from it and evaluates the clone.

    Args:
        root: Folder for everything the run makes; one run at a time may have it.
        seed: Seed of every stage; the seeds inside the stages' parameters are not used. None: another one for each run,
            and the same when a run is retried.
        expert: The environment, and how the expert learns to master it.
        recording: How the expert's episodes are recorded.
        pruning: Which of them are kept.
        quality: What the kept ones have to meet, lest the run stops.
        training: How the policy is learned from them.
        evaluation: How the policy is put to the test.
    """
    place = Location.of(root)
    seeded = {"seed": seed_of(seed)}
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        seconds[name] = time.perf_counter() - start

    parameters = {
        "expert": expert,
        "recording": recording,
        "pruning": pruning,
        "quality": quality,
        "training": training,
        "evaluation": evaluation,
    }
    with place.make_folder().locked():  # lest another chain put its policies where this one's next stage looks
        with timed("all"), crashing(), ray_scope():
            with timed("train expert"):
                expert_result = train_expert(expert.model_copy(update=seeded), output=place.child("expert").uri)
            with timed("record episodes"):
                recorded = record_episodes(
                    recording.model_copy(update=seeded), policy=expert_result.checkpoint, output=place.child("recording").uri
                ).dataset
            with timed("prune"):
                pruned = prune_dataset(
                    pruning, dataset=recorded.uri, version=recorded.version, output=place.child("pruned").uri
                )
            with timed("check"):
                checked = check_dataset(quality, dataset=pruned.dataset.uri, version=pruned.dataset.version)
            with timed("train policy"):
                trained = train_policy(
                    training.model_copy(update=seeded),
                    dataset=pruned.dataset.uri,
                    version=pruned.dataset.version,
                    output=place.child("policy").uri,
                )
            with timed("evaluate"):
                evaluated = evaluate_policy(evaluation.model_copy(update=seeded), policy=trained.checkpoint)
        result = ExpertToPolicyResult(
            expert=expert_result,
            recording=recorded,
            pruning=pruned,
            quality=checked,
            training=trained,
            evaluation=evaluated,
            seconds=seconds,
        )
        summarize_chain(result, root=place.uri, parameters=parameters)
    return result
