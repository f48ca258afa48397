"""A root with a bit of everything that the report shows, and a server of it."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

import offline_core as offline
from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.result_cache import store_result
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes import Episode
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.data.store.json_files import line_of
from offline_core.data.store.location import Location
from offline_core.judging.sweeps.result import FailedRun, SweepResult, SweptRun, SweptSetting
from offline_core.keeping.homepage.config import ReportConfig
from offline_core.keeping.homepage.serving import ReportServer
from offline_core.policies.manifest import read_policy_manifest
from tests.data.datasets.factories import episode, write_dataset, write_files
from tests.judging.decisions.made_up import candidate, difference, made_up
from tests.made_up_results import estimated, policy_results, training

HOSTILE = "<img src=x onerror=alert(1)>"
FEATURES = ["indoor temperature (°C)", "outdoor temperature (°C)", "hour", "occupied"]
HOUR_NS = 3_600_000_000_000


def building_episode(number: int, steps: int = 48) -> Episode:
    """Two days of a building, an hour a step, heated when it is cold inside."""
    rng = np.random.default_rng(number)
    hours = np.arange(steps + 1) % 24
    outdoor = 5 + 6 * np.sin((hours - 9) / 24 * 2 * np.pi) + rng.normal(0, 0.5, steps + 1)
    indoor = 20 + np.cumsum(rng.normal(0, 0.3, steps + 1)) * 0.6
    heats = (indoor[:-1] < 20).astype(np.int64)
    observations = np.stack([indoor, outdoor, hours, (hours > 7) & (hours < 19)], axis=1).astype(np.float32)
    times = 1_767_225_600_000_000_000 + HOUR_NS * np.arange(steps, dtype=np.int64)
    return episode(
        number,
        steps,
        observations=observations,
        actions=heats,
        rewards=-(np.abs(indoor[1:] - 21) + 0.2 * heats).round(2),
        extras={"time": times, "action_logp": np.full(steps, -0.1, np.float32)},
        terminated=False,
        truncated=True,
        observation_space=spaces.Box(-50, 50, (4,), np.float32),
    )


def write_building(folder: Path, episodes: int = 60) -> None:
    made = [building_episode(number) for number in range(episodes)]
    writer = write_files(folder, made, "table", batch=20)
    commit(
        str(folder),
        writer.files,
        format="table",
        operation=Operation(name="import"),
        statistics=Statistics.of(writer.summaries),
        observation_space=made[0].observation_space,
        action_space=made[0].action_space,
        input_columns=InputColumns(steps=RowSteps(), obs=FEATURES, action="heating", labels=["off", "heat"]),
    )


def write_root(root: Path) -> None:
    """Datasets, one with pictures and one with a hostile name; a training, a sweep with seeds, a failed run; decisions."""
    write_building(root / "building")
    offline.check(root / "building")
    pictures = np.random.default_rng(0).integers(0, 256, (13, 48, 64, 3), np.uint8)
    seen = spaces.Box(0, 255, pictures.shape[1:], np.uint8)
    write_dataset(root / "camera", [episode(i, 12, observations=pictures, observation_space=seen) for i in range(3)])
    write_dataset(root / HOSTILE, [episode(i, eps_id=HOSTILE if i else f"{i}") for i in range(2)])
    held_out = {"held_out": str(root / "building")}
    trained = offline.train(
        root / "building", algorithm="bc", optimizer={"max_updates": 60}, evaluation=held_out, output=root / "policy"
    )
    (root / "policy/card.md").write_text(
        "# Policy\n\n## What ran\n\n```yaml\na: 1\n```\n\n```console\noffline train building\n```\n"
    )
    data, policy = offline.open_dataset(root / "building").ref, trained.checkpoint
    settings = []
    for number, rate in enumerate((0.001, 0.0003)):
        runs = []
        for seed in range(3):
            folder = root / f"sweep/{'0123456789abcdef'[number] * 16}/{seed}"
            shutil.copytree(root / "policy/best", folder / "best")
            curve = [(100 * i, 10 * (1 - 0.8**i) * (1 + number) + seed) for i in range(1, 13)]
            losses = [(50 * i, (1 + seed / 5) / i + 0.01) for i in range(1, 60)]
            values = {"curve": curve, "losses": losses, "held_out_losses": losses[::5]}
            result = training(f"{folder}/best", data, **values)
            store_result(Location.of(f"{folder}/result.json"), "", result, fingerprints={})
            run = SweptRun(seed=seed, checkpoint=f"{folder}/best", score=curve[-1][1], curve=curve, updates=1200, seconds=9.0)
            runs.append(run)
        numbers = {"mean": 10.0, "interquartile_mean": 10.0, "low": 9.0, "high": 11.0}
        parameters = {"optimizer.learning_rate": rate}
        setting = {"name": f"learning_rate={rate}", "algorithm": "bc", "folder": "", "curve": []}
        settings.append(SweptSetting(parameters=parameters, runs=runs, **setting, **numbers))
    error = "NonFiniteError: The loss is NaN at update 40. Lower optimizer.learning_rate."
    sweep = SweepResult(
        checkpoint=settings[1].runs[0].checkpoint,
        dataset=data,
        score="mean return",
        settings=settings,
        expected_best={},
        failures=[FailedRun(setting="learning_rate=1", seed=0, error=error, may_pass=False)],
        confidence=0.95,
        seconds=1.0,
    )
    store_result(Location.of(str(root / "sweep/result.json")), "", sweep, fingerprints={})
    fingerprint = read_policy_manifest(policy).fingerprint
    best = {"checkpoint": policy, "fingerprint": fingerprint, "judged": difference(1.2, 0.55), "overlap": 0.93}
    for verdict in ("refused", "promote"):
        decision = made_up(verdict, uri=str(root / verdict), candidates=[candidate("policy", **best)])  # type: ignore[arg-type]
        (root / verdict).mkdir()
        store_result(Location.of(str(root / verdict / "result.json")), "", decision, fingerprints={})
    evaluation = dict(policy_results("", policy, data))["evaluate"]
    for name, result in (("_evaluations/0a", evaluation), ("_estimates/0a", estimated(uri=f"{policy}/_estimates/0a.json"))):
        store_result(Location.of(f"{policy}/{name}.json"), "", result, fingerprints={policy: fingerprint})
        store_result(Location.of(f"{policy}/{name}-old.json"), "", result, fingerprints={policy: "of a policy before"})
    write_metrics(root / "going on", 8)


def write_metrics(folder: Path, records: int) -> None:
    """The metrics of a run that goes on."""
    folder.mkdir(exist_ok=True)
    lines = [line_of({"updates": 100 * i, "loss": 1 / i, "q_mean": 2.0 * i}) for i in range(1, records + 1)]
    (folder / "metrics.jsonl").write_bytes(b"".join(lines))


@contextlib.contextmanager
def server_of(root: Path, **config: Any) -> Iterator[ReportServer]:
    """A server of the root in this process, which answers."""
    server = ReportServer(str(root), ReportConfig(**config))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def rows_in(value: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows of a list by name, each by the names of its fields."""
    return {name: dict(zip(value["fields"], row, strict=True)) for name, row in value["rows"].items()}
