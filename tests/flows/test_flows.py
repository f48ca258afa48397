"""The flows under a real Prefect server, with real Ray, on real CartPole; how good the policies are is tested in the core."""

from __future__ import annotations

import base64
import io
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from PIL import Image
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, LogFilter, LogFilterFlowRunId
from prefect.client.schemas.objects import Artifact, FlowRun
from prefect.flow_engine import run_flow
from prefect.logging.handlers import APILogHandler

from flows.expert_to_policy import expert_to_policy
from flows.local_flow import flow
from flows.stages import evaluate, prune, train
from offline_core.data.curation.config import PruningConfig
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.data.store.location import Location
from offline_core.errors import BusyError, CheckpointError, EmptyDatasetError
from offline_core.keeping.cards import keep_card
from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.trainer_config import EvaluationsConfig
from offline_core.policies.evaluation import EvaluationConfig
from offline_core.policies.recording.config import RecordingConfig
from offline_core.runtime.config import parse
from tests.learning.test_train import balancing_episodes, dataset_of

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.filterwarnings("default")]


def artifacts_of(flow_run_id: UUID) -> list[Artifact]:
    with get_client(sync_client=True) as client:
        wanted = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]))
        return client.read_artifacts(artifact_filter=wanted)


def latest_run() -> FlowRun:
    from prefect.client.schemas.sorting import FlowRunSort

    with get_client(sync_client=True) as client:
        return client.read_flow_runs(sort=FlowRunSort.START_TIME_DESC, limit=1)[0]


def test_from_nothing_to_a_policy(ray_up: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole chain as one flow run: each stage leaves its result on disk and its card, with a picture, in Prefect.

    Its root is its own up to the last card, and free afterwards.
    """

    def keep_alone(*arguments: Any, **named: Any) -> Any:
        with pytest.raises(BusyError), Location.of(str(tmp_path)).locked():
            pass
        return keep_card(*arguments, **named)

    monkeypatch.setattr("tasks.chain.keep_card", keep_alone)
    result = expert_to_policy(
        root=str(tmp_path),
        seed=3,
        expert=ExpertConfig(total_steps=8_000, num_envs=16, evaluation=EvaluationsConfig(target_return=30, episodes=5)),
        recording=RecordingConfig(episodes=60, num_recorders=1, cpus_per_recorder=0.5),
        pruning=PruningConfig(where="return >= 1", keep_top_fraction=0.9),
        training=parse(TrainingConfig, {"optimizer": {"max_epochs": 2}, "evaluation": {"episodes": 5}}),
        evaluation=EvaluationConfig(episodes=10),
    )
    assert result.expert.metrics["episode_return_mean"] >= 30
    assert len(result.evaluation.returns) == 10

    recorded = list(open_dataset(result.recording.uri, result.recording.version).episodes())
    assert len(recorded) == 60 == len({e.eps_id for e in recorded})
    assert all(isinstance(e, Episode) and e.is_done for e in recorded)
    kept = open_dataset(result.pruning.dataset.uri)
    assert kept.manifest.statistics.episodes == result.pruning.before.episodes - result.pruning.dropped_episodes <= 54
    assert kept.manifest.parents[0].fingerprint == result.recording.fingerprint
    assert result.quality.dataset == result.training.dataset == result.pruning.dataset
    assert result.quality.verdict != "fail"
    with Location.of(str(tmp_path)).locked():
        pass

    run = latest_run()
    assert run.state is not None and run.state.is_completed()
    assert run.name == "expert-to-policy: bc in CartPole-v1, seed 3"
    cards = {card.key: str(card.data) for card in artifacts_of(run.id) if card.key}  # progress has none
    rows = {
        "train-expert-card": "| Environment steps |",
        "record-card": "| Bytes per step |",
        "prune-card": "54 of 60 episodes kept",
        "check-card": "| verdict | rule | found |",
        "train-card": "| Bottleneck |",
        "evaluate-card": "| Steps per episode |",
        "expert-to-policy-card": "| Train policy | \\[",
    }
    assert cards.keys() == rows.keys()
    for key, text in cards.items():
        assert rows[key] in text, key
        picture = re.search(r"data:image/png;base64,([^)]+)", text)
        if key == "train-expert-card" and len(result.expert.curve) < 2:
            assert picture is None, "a single point is a number"
            continue
        assert picture is not None, key
        image = Image.open(io.BytesIO(base64.b64decode(picture.group(1))))
        assert image.width >= 400 and len(image.getcolors(1 << 20)) > 3, key


@pytest.mark.parametrize(
    ("given", "name"), [(None, "named-3"), ("dainty-sawfly", "named-3"), ("For the paper", "For the paper")]
)
def test_a_run_is_named_by_its_parameters_unless_a_person_named_it(given: str | None, name: str) -> None:
    """Words as in dainty-sawfly are what Prefect makes up."""

    @flow(name="named", run_name="named-{seed}")
    def named(seed: int = 0) -> None:
        pass

    with get_client(sync_client=True) as client:
        run = client.create_flow_run(named, parameters={"seed": 3}, name=given)
        run_flow(named, flow_run=run, parameters={"seed": 3})
        assert client.read_flow_run(run.id).name == name


def test_two_chains_cannot_have_one_root_at_once(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    hold = "import sys; from offline_core.data.store.location import Location as L\n"
    hold += "with L.of(sys.argv[1]).make_folder().locked(): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", hold, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with pytest.raises(BusyError, match=r"Another run is writing to .*/runs\. Wait until it is done, or choose another"):
            expert_to_policy(root=str(root))
        assert latest_run().state.is_failed()
        other.communicate()
    assert {path.name for path in root.iterdir()} <= {".lock"}


def test_a_failure_is_one_clear_error_and_ends_ray(tmp_path: Path) -> None:
    import ray

    with pytest.raises(CheckpointError, match="no policy at"):
        evaluate(policy=str(tmp_path / "none"))
    run = latest_run()
    assert run.state is not None and run.state.is_failed() and "no policy at" in str(run.state.message)
    with pytest.raises(Exception, match="no dataset at"):
        train(dataset=str(tmp_path / "none"), output=str(tmp_path / "out"))
    assert not ray.is_initialized()


def test_what_ends_a_run_is_told_by_one_line_of_its_log(tmp_path: Path) -> None:
    """Of those of the task, of the flow, and of the states that both end in."""
    data = dataset_of(tmp_path / "data", balancing_episodes(4, seed=0), environment=None)
    with pytest.raises(EmptyDatasetError):
        prune(dataset=data, output=str(tmp_path / "out"), config=PruningConfig(where="return >= 1e6"))
    APILogHandler().flush()
    with get_client(sync_client=True) as client:
        logs = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[latest_run().id])))
    [line] = [line for line in logs if "No version was committed" in line.message]
    assert line.level == logging.ERROR and "Traceback" not in line.message
    assert [each.message for each in logs if each.message.startswith("Finished")] == ["Finished in state Failed()"] * 2


@pytest.mark.slow
def test_a_training_that_nobody_plays_leaves_its_card_too(tmp_path: Path) -> None:
    data, other = (
        dataset_of(tmp_path / name, balancing_episodes(4, seed=seed), environment=None) for seed, name in enumerate(("a", "b"))
    )
    wanted = parse(TrainingConfig, {"algorithm": "marwil", "evaluation": {"held_out": other}, "optimizer": {"max_epochs": 2}})
    result = train(dataset=data, output=str(tmp_path / "out"), config=wanted)
    (card,) = (str(card.data) for card in artifacts_of(latest_run().id) if card.key == "train-card")
    for row in ("Never played", "Effective sample size", "Normalizer", "steps/s"):
        assert row in card
    assert result.metrics == {} and result.held_out_losses
