"""The chain of examples/distributed.yaml: Ray Data, its pool of actors and the learners' exchange are seen at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ray.data
import torch

from flows.expert_to_policy import expert_to_policy
from flows.settings import read_values
from offline_core.learning import group
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.trainer_config import EvaluationsConfig
from offline_core.policies.evaluation import EvaluationConfig
from offline_core.runtime.config import parse
from tests.deployments.flows import EXAMPLES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("prefect_server", "ray_up"),
    pytest.mark.filterwarnings("default"),
]

TINY = ["training.optimizer.max_epochs=1", "training.evaluation.episodes=5", "recording.episodes=40"]


def test_the_distributed_chain_uses_ray_data_pools_and_learners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[Any] = []
    mapped = ray.data.Dataset.map
    monkeypatch.setattr(ray.data.Dataset, "map", lambda *a, **k: tasks.append(k) or mapped(*a, **k))
    monkeypatch.setattr(group, "LearnerProcess", _noting(tmp_path / "learner"))
    values = read_values(TINY, str(EXAMPLES / "distributed.yaml"))
    models = {name: parse(expert_to_policy.fn.__annotations__[name], value) for name, value in values.items()}
    expert = ExpertConfig(total_steps=2048, num_envs=16, evaluation=EvaluationsConfig(episodes=2), seed=0)
    result = expert_to_policy(root=str(tmp_path / "chain"), expert=expert, evaluation=EvaluationConfig(episodes=2), **models)

    names = ["train expert", "record episodes", "convert to episodes", "prune", "check", "train policy", "evaluate"]
    assert [stage.name for stage in result.stages] == names
    assert result.conversion is not None and result.conversion.source == result.recording
    assert tasks, "the conversion is a map of Ray Data"
    ranks = [(tmp_path / f"learner-{rank}").read_text().splitlines() for rank in range(2)]
    made = ["a pool of 1 to 1", "iter_batches", *["update"] * result.training.updates]
    assert ranks == [made, made], "a pool each, one pass over what it makes, an exchange in each update"


def _noting(place: Path) -> type[group.LearnerProcess]:
    """The actor that learns; the file `place`-RANK has a line for each pool, each pass over what it makes, and each update."""

    class Noting(group.LearnerProcess):
        def learn(self, *args: Any) -> Any:
            rank, all_reduce = self._rank, torch.distributed.all_reduce
            map_batches, iter_batches = ray.data.Dataset.map_batches, ray.data.Dataset.iter_batches

            def note(line: str) -> None:
                with open(f"{place}-{rank}", "a") as file:
                    file.write(f"{line}\n")

            def mapping(*args: Any, **kwargs: Any) -> Any:
                if isinstance(pool := kwargs.get("compute"), ray.data.ActorPoolStrategy):
                    note(f"a pool of {pool.min_size} to {pool.max_size}")
                return map_batches(*args, **kwargs)

            def iterating(*args: Any, **kwargs: Any) -> Any:
                note("iter_batches")
                return iter_batches(*args, **kwargs)

            def noted(values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
                if values.is_floating_point() and values.ndim:
                    note("update")  # gradients and metrics
                return all_reduce(values, *args, **kwargs)

            ray.data.Dataset.map_batches = mapping  # type: ignore[method-assign]
            ray.data.Dataset.iter_batches = iterating  # type: ignore[method-assign]
            torch.distributed.all_reduce = noted
            return super().learn(*args)

    return Noting
