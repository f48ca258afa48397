"""`offline ls` of a large root: how long the first list and the second one take, and with how much memory.

    python -m benchmarks.catalog [--results 100000] [--versions 10000] [--keep FOLDER]

The root is synthetic: small files as the stages write them, with other names and numbers. A training has a policy with 10
evaluations and 9 estimates, which are 20 results; a dataset has 10 versions, the last of them checked. Each list is a
command in a process of its own, with a cache that is empty the first time; `core` is the call alone, without Python's start.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figure import environment, figure, seconds
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.manifest import FileEntry, Manifest, Operation, Parent
from offline_core.data.datasets.statistics import Statistics, Summary
from offline_core.data.quality.config import QualityConfig
from offline_core.data.quality.result import Histogram, QualityReport
from offline_core.data.store.json_files import line_of, with_checksum
from offline_core.judging.estimation.result import ESTIMATES as ESTIMATES_FOLDER
from offline_core.judging.estimation.result import Estimate, EstimateResult, Interval
from offline_core.learning.result import TrainingResult
from offline_core.policies.config import NetworkConfig
from offline_core.policies.evaluation import EVALUATIONS as EVALUATIONS_FOLDER
from offline_core.policies.evaluation import EvaluationResult
from offline_core.policies.manifest import PolicyManifest
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.result import Result

VERSIONS_OF_A_DATASET = 10
EVALUATIONS, ESTIMATES = 10, 9
CORE = """
import json, resource, sys, time
from offline_core.keeping.homepage.listing import list_root
start, cpu = time.perf_counter(), time.process_time()
listing = list_root(sys.argv[1])
told = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - cpu, "entries": len(listing.entries)}
print(json.dumps(told | {"mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "problems": len(listing.problems)}))
"""
RESULTS_OF_A_POLICY = 1 + EVALUATIONS + ESTIMATES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=100_000)
    parser.add_argument("--versions", type=int, default=10_000)
    parser.add_argument("--keep", help="Folder for the root, which is used again if it is there.")
    arguments = parser.parse_args()
    root = Path(arguments.keep or tempfile.mkdtemp(prefix="offline-catalog-"))
    try:
        if not (root / "runs").exists():
            took = seconds(write_root, root / "runs", results=arguments.results, versions=arguments.versions)
            figure("catalog.write", took, "s", results=arguments.results, versions=arguments.versions)
        measure(root)
    finally:
        if not arguments.keep:
            shutil.rmtree(root)


def measure(root: Path) -> None:
    """Two lists, as commands and as calls."""
    cache = root / "cache"
    for what, arguments in (
        ("command", [sys.executable, "-c", "from flows.cli import main; main()", "ls", str(root / "runs")]),
        ("core", [sys.executable, "-c", CORE, str(root / "runs")]),
    ):
        shutil.rmtree(cache, ignore_errors=True)
        for turn in ("first", "second"):
            _show(f"catalog.ls.{turn}", what, arguments, cache)
    [file] = (cache / "catalogues").iterdir()
    figure("catalog.cache", file.stat().st_size / 2**20, "MiB", **environment("pyarrow", "pydantic"))


def _show(name: str, what: str, arguments: list[str], cache: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as output:
        took = seconds(subprocess.run, arguments, check=True, stdout=output, env={**os.environ, "OFFLINE_CACHE": str(cache)})
        output.seek(0)
        text = output.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if what == "core":
        told = json.loads(text)
        figure(
            name,
            told["seconds"],
            "s",
            of=what,
            cpu_seconds=round(told["cpu_seconds"], 3),
            entries=told["entries"],
            memory_mib=told["mib"],
        )
    else:
        figure(name, took, "s", of=what, cpu_seconds=round(cpu, 3), lines=text.count(b"\n"), start_seconds=_start_seconds())


def _start_seconds() -> float:
    """Wall time of a command that does nothing."""
    return round(seconds(subprocess.run, [sys.executable, "-c", "import offline_core.data.datasets.dataset"], check=True), 3)


def write_root(root: Path, *, results: int, versions: int) -> None:
    """Write the synthetic root."""
    for number in range(versions // VERSIONS_OF_A_DATASET):
        _dataset(root / f"data-{number // 100:03d}" / f"recording-{number:05d}", number)
    for number in range(results // RESULTS_OF_A_POLICY):
        _training(root / f"study-{number // 500:03d}" / f"bc-{number:06d}", number)


def _dataset(folder: Path, number: int) -> None:
    (folder / "_versions").mkdir(parents=True)
    (folder / "_checks").mkdir()
    summary = Summary(count=20, mean=9.5, std=1.5, min=3.0, max=20.0)
    statistics = Statistics(episodes=20, steps=600, terminated=20, returns=summary, lengths=summary)
    for version in range(1, VERSIONS_OF_A_DATASET + 1):
        name = f"part-000000-{_hex(number, version)[:12]}.parquet"
        (folder / name).write_bytes(b"PAR1")
        file = FileEntry(path=name, rows=20, episodes=20, steps=600, bytes=4, sha256=_hex(name), footer_sha256=_hex(name, 1))
        manifest = Manifest(
            version=version,
            format="table",
            operation=Operation(name="record", version=3, config={"episodes": 20, "seed": number}),
            parents=[Parent(kind="checkpoint", uri=f"/runs/expert-{number}", fingerprint=_hex(number)[:16])],
            statistics=statistics,
            files=[file],
        )
        (folder / "_versions" / f"{version:06d}.json").write_bytes(with_checksum(manifest.to_json()))
    (folder / "_versions" / f"last-{VERSIONS_OF_A_DATASET:06d}").write_bytes(b"")
    report = QualityReport(
        dataset=_ref(folder, version),
        verdict="pass",
        findings=[],
        statistics=statistics,
        returns=Histogram(edges=[0.0, 1.0], counts=[20]),
        lengths=Histogram(edges=[0.0, 1.0], counts=[20]),
        config=QualityConfig(),
    )
    _stored(folder / "_checks" / f"{version:06d}.json", report, {str(folder): manifest.fingerprint})


def _training(folder: Path, number: int) -> None:
    best = folder / "best"
    best.mkdir(parents=True)
    data = folder.parent.parent / f"data-{number // 50 % 10:03d}" / f"recording-{number % 1000:05d}"
    metrics = {"episode_return_mean": 100.0 + number, "episode_return_std": 3.5, "episodes": 20.0}
    policy = PolicyManifest(
        network=NetworkConfig(hidden_sizes=[256, 256]),
        value_function=False,
        observation_space={"space": "box"},
        action_space={"space": "discrete"},
        environment=EnvironmentSpec(id="CartPole-v1"),
        operation=Operation(name="train", version=5, config={"algorithm": "iql", "seed": number}),
        parents=[Parent(kind="dataset", uri=str(data), version=3, fingerprint=_hex(number)[:16])],
        metrics=metrics,
        weights_file="weights.safetensors",
        weights_sha256=_hex(number),
    )
    (best / "policy.json").write_bytes(with_checksum(policy.model_dump_json(indent=2)))
    (best / "weights.safetensors").write_bytes(b"0")
    (folder / "metrics.jsonl").write_bytes(line_of({"updates": 1}))
    curve = [(100 * i, 9.5 + i) for i in range(10)]
    training = TrainingResult(
        checkpoint=str(best),
        last_checkpoint=str(best),
        metrics=metrics,
        algorithm="iql",
        networks_sha256="0" * 64,
        curve=curve,
        dataset=_ref(data, 3),
        target_return=None,
        reached_target=False,
        updates=1000,
        steps=256_000,
        epochs=3.0,
        losses=curve,
        held_out_losses=curve,
        training_metrics={"loss": 0.5, "q": 9.5},
        bottleneck="updating",
        seconds=3.5,
        load_seconds=0.5,
        update_seconds=2.5,
        gather_seconds=0.25,
        data_wait_seconds=0.25,
        steps_per_second=10_000.0,
    )
    _stored(folder / "result.json", training, {str(best): policy.fingerprint})
    returns = [9.5 + i for i in range(20)]
    interval = Interval(value=57.25, low=40.5, high=70.125)
    one = Estimate(value=57.25, low=40.5, high=70.125, effective_episodes=17.5, largest_weight=0.125)
    for kind, count in ((EVALUATIONS_FOLDER, EVALUATIONS), (ESTIMATES_FOLDER, ESTIMATES)):
        (best / kind).mkdir()
        for index in range(count):
            path = best / kind / f"{_hex(kind, number, index)[:16]}.json"
            result: Result = EvaluationResult(
                checkpoint=str(best),
                uri=str(path),
                environment="CartPole-v1",
                metrics=metrics,
                returns=returns,
                lengths=[20] * 20,
                seconds=1.5,
            )
            if kind == ESTIMATES_FOLDER:
                result = EstimateResult(
                    checkpoint=str(best),
                    uri=str(path),
                    dataset=_ref(data, 3),
                    behaviour=None,
                    explore=False,
                    gamma=0.99,
                    horizon=None,
                    confidence=0.95,
                    recorded=interval,
                    estimates=dict.fromkeys(("fqe", "wis", "dr"), one),
                    warnings=[],
                    open_episodes=0,
                    unrecorded_share=0.0,
                    seconds=1.5,
                )
            _stored(path, result, {str(best): policy.fingerprint})


def _ref(folder: Path, version: int) -> DatasetRef:
    fingerprint = _hex(str(folder), version)[:16]
    return DatasetRef(uri=str(folder), version=version, fingerprint=fingerprint, episodes=20, steps=600, bytes=30_000)


def _stored(path: Path, result: Result, made: dict[str, str]) -> None:
    """Write a result as `store_result` does, without waiting for the disk."""
    values = {"place": str(path), "identity": _hex(str(path))[:16], "made": made, "result": result.model_dump(mode="python")}
    path.write_bytes(with_checksum(json.dumps(values, indent=2, default=str)))


def _hex(*values: object) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()


if __name__ == "__main__":
    main()
