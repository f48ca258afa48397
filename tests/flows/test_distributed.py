"""The chain of examples/distributed.yaml: Ray Data, its pool of actors and the learners' DDP are seen at work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray.data
import torch
from ray import cloudpickle

from flows.expert_to_policy import expert_to_policy
from flows.settings import read_values
from offline_core.config import parse
from offline_core.evaluation.config import EvaluationConfig
from offline_core.experts.config import ExpertConfig
from offline_core.learning import group
from tests.deployments.flows import EXAMPLES

pytestmark = [pytest.mark.usefixtures("prefect_server", "ray_up"), pytest.mark.filterwarnings("default")]

TINY = ["training.optimizer.max_epochs=1", "training.evaluation.episodes=5", "recording.episodes=40"]


def test_the_distributed_chain_uses_ray_data_a_pool_and_ddp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped, read = _spied(monkeypatch, "map_batches"), _spied(monkeypatch, "iter_batches")
    tasks = _spied(monkeypatch, "map")
    monkeypatch.setattr(group, "_learner", _noting_ddp(group._learner, tmp_path / "ddp"))
    values = read_values(TINY, str(EXAMPLES / "distributed.yaml"))
    models = {name: parse(expert_to_policy.fn.__annotations__[name], value) for name, value in values.items()}
    expert = ExpertConfig(total_steps=2048, num_envs=16, evaluation_episodes=2, seed=0)
    result = expert_to_policy(root=str(tmp_path / "chain"), expert=expert, evaluation=EvaluationConfig(episodes=2), **models)

    names = ["train expert", "record episodes", "convert to episodes", "prune", "check", "train policy", "evaluate"]
    assert [stage.name for stage in result.stages] == names
    assert result.conversion is not None and result.conversion.source == result.recording
    assert tasks, "the conversion is a map of Ray Data"
    pools = [each["compute"] for each in mapped if isinstance(each.get("compute"), ray.data.ActorPoolStrategy)]
    assert [(pool.min_size, pool.max_size) for pool in pools] == [(2, 2)]
    assert len(read) == 1, "one pass over what the pool made"
    ranks = [(tmp_path / f"ddp-{rank}").read_text().splitlines() for rank in range(2)]
    assert [len(lines) for lines in ranks] == [result.training.updates] * 2, "each learner's DDP has seen each update"


def _spied(monkeypatch: pytest.MonkeyPatch, name: str) -> list[dict[str, Any]]:
    """Keyword arguments of all calls to a method of `ray.data.Dataset`."""
    calls: list[dict[str, Any]] = []
    method = getattr(ray.data.Dataset, name)
    monkeypatch.setattr(ray.data.Dataset, name, lambda *args, **kwargs: calls.append(kwargs) or method(*args, **kwargs))
    return calls


def _noting_ddp(learner: Callable[[dict[str, Any]], Any], place: Path) -> Callable[[dict[str, Any]], Any]:
    """`learner`, in whose process each call of a DDP module adds a line to the file `place`-RANK."""
    wrapped = cloudpickle.dumps(learner)

    def noting(settings: dict[str, Any]) -> Any:
        import ray.train

        ddp = torch.nn.parallel.DistributedDataParallel
        forward = ddp.forward

        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            with open(f"{place}-{ray.train.get_context().get_world_rank()}", "a") as file:
                file.write("forward\n")
            return forward(self, *args, **kwargs)

        ddp.forward = noted  # type: ignore[method-assign]
        return cloudpickle.loads(wrapped)(settings)

    return noting
