"""The chain of examples/distributed.yaml: Ray Data, its pool of actors and the learners' DDP are seen at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ray.data
import torch

from flows.expert_to_policy import expert_to_policy
from flows.settings import read_values
from offline_core.evaluation.config import EvaluationConfig
from offline_core.experts.config import ExpertConfig
from offline_core.learning import group
from offline_core.runtime.config import parse
from tests.deployments.flows import EXAMPLES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("prefect_server", "ray_up"),
    pytest.mark.filterwarnings("default"),
]

TINY = ["training.optimizer.max_epochs=1", "training.evaluation.episodes=5", "recording.episodes=40"]


def test_the_distributed_chain_uses_ray_data_a_pool_and_ddp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[Any] = []
    mapped = ray.data.Dataset.map
    monkeypatch.setattr(ray.data.Dataset, "map", lambda *a, **k: tasks.append(k) or mapped(*a, **k))
    monkeypatch.setattr(group, "LoaderActor", _noting_feeder(tmp_path / "feeder"))
    monkeypatch.setattr(group, "LearnerProcess", _noting_ddp(tmp_path / "ddp"))
    values = read_values(TINY, str(EXAMPLES / "distributed.yaml"))
    models = {name: parse(expert_to_policy.fn.__annotations__[name], value) for name, value in values.items()}
    expert = ExpertConfig(total_steps=2048, num_envs=16, evaluation_episodes=2, seed=0)
    result = expert_to_policy(root=str(tmp_path / "chain"), expert=expert, evaluation=EvaluationConfig(episodes=2), **models)

    names = ["train expert", "record episodes", "convert to episodes", "prune", "check", "train policy", "evaluate"]
    assert [stage.name for stage in result.stages] == names
    assert result.conversion is not None and result.conversion.source == result.recording
    assert tasks, "the conversion is a map of Ray Data"
    assert (tmp_path / "feeder").read_text().splitlines() == ["a pool of 2 to 2", "iter_batches"], "one pass over what it made"
    ranks = [(tmp_path / f"ddp-{rank}").read_text().splitlines() for rank in range(2)]
    assert [len(lines) for lines in ranks] == [result.training.updates] * 2, "each learner's DDP has seen each update"


def _noting_feeder(place: Path) -> type[group.LoaderActor]:
    """The actor that reads for the learners; the file `place` has a line for each pool and each pass over what it makes."""

    class Noting(group.LoaderActor):
        def __init__(self, run: Any) -> None:
            map_batches, iter_batches = ray.data.Dataset.map_batches, ray.data.Dataset.iter_batches

            def note(line: str) -> None:
                with open(place, "a") as file:
                    file.write(f"{line}\n")

            def mapping(*args: Any, **kwargs: Any) -> Any:
                if isinstance(pool := kwargs.get("compute"), ray.data.ActorPoolStrategy):
                    note(f"a pool of {pool.min_size} to {pool.max_size}")
                return map_batches(*args, **kwargs)

            def iterating(*args: Any, **kwargs: Any) -> Any:
                note("iter_batches")
                return iter_batches(*args, **kwargs)

            ray.data.Dataset.map_batches = mapping  # type: ignore[method-assign]
            ray.data.Dataset.iter_batches = iterating  # type: ignore[method-assign]
            super().__init__(run)

    return Noting


def _noting_ddp(place: Path) -> type[group.LearnerProcess]:
    """The actor that learns; each call of its DDP module adds a line to the file `place`-RANK."""

    class Noting(group.LearnerProcess):
        def learn(self, *args: Any) -> Any:
            ddp = torch.nn.parallel.DistributedDataParallel
            forward, file = ddp.forward, f"{place}-{self._rank}"

            def noted(module: Any, *args: Any, **kwargs: Any) -> Any:
                with open(file, "a") as lines:
                    lines.write("forward\n")
                return forward(module, *args, **kwargs)

            ddp.forward = noted  # type: ignore[method-assign]
            return super().learn(*args)

    return Noting
