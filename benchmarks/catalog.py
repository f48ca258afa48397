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
from typing import Any

from benchmarks.figure import environment, figure, seconds
from offline_core.data.store.json_files import with_checksum

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
    for version in range(1, VERSIONS_OF_A_DATASET + 1):
        data = f"part-000000-{_hex(number, version)[:12]}.parquet"
        (folder / data).write_bytes(b"PAR1")
        _write(folder / "_versions" / f"{version:06d}.json", _manifest(number, version, data))
    (folder / "_versions" / f"last-{VERSIONS_OF_A_DATASET:06d}").write_bytes(b"")
    check = {"dataset": _ref(folder, version), "verdict": "pass", "findings": [], "statistics": {"episodes": 20}}
    _stored(folder / "_checks" / f"{version:06d}.json", check)


def _training(folder: Path, number: int) -> None:
    (folder / "best").mkdir(parents=True)
    data = folder.parent.parent / f"data-{number // 50 % 10:03d}" / f"recording-{number % 1000:05d}"
    curve = [[100 * i, 9.5 + i] for i in range(10)]
    metrics = {"episode_return_mean": 100.0 + number, "episode_return_std": 3.5, "episodes": 20.0}
    best = folder / "best"
    policy = {
        "checkpoint_version": 1,
        "network": {"hidden_sizes": [256, 256], "activation": "relu"},
        "operation": {"name": "train", "version": 5, "config": {"algorithm": "iql", "seed": number}},
        "parents": [{"kind": "dataset", "uri": str(data), "version": 3, "fingerprint": _hex(number)[:16]}],
        "metrics": metrics,
        "environment": {"id": "CartPole-v1", "kwargs": {}},
        "weights_file": "weights.safetensors",
        "weights_sha256": _hex(number),
        "created_at": "2026-11-27T10:00:00Z",
    }
    _write(best / "policy.json", policy)
    (best / "weights.safetensors").write_bytes(b"0")
    (folder / "metrics.jsonl").write_text('{"updates": 1}\n')
    training = {"checkpoint": str(best), "metrics": metrics, "algorithm": "iql", "curve": curve, "dataset": _ref(data, 3)}
    _stored(folder / "result.json", training | {"losses": curve, "epochs": 3.0, "updates": 1000, "seconds": 3.5})
    for kind, count in (("_evaluations", EVALUATIONS), ("_estimates", ESTIMATES)):
        (best / kind).mkdir()
        for each in range(count):
            place = best / kind / f"{_hex(kind, number, each)[:16]}.json"
            _stored(
                place,
                {"checkpoint": str(best), "uri": str(place)}
                | (_played(metrics) if kind == "_evaluations" else _estimated(data)),
            )


def _played(metrics: dict[str, float]) -> dict[str, Any]:
    returns = [9.5 + i for i in range(20)]
    return {"environment": "CartPole-v1", "metrics": metrics, "returns": returns, "lengths": [int(x) for x in returns]}


def _estimated(data: Path) -> dict[str, Any]:
    interval = {"value": 57.25, "low": 40.5, "high": 70.125}
    more = {"effective_episodes": 17.5, "largest_weight": 0.125}
    estimates = dict.fromkeys(("fqe", "wis", "dr"), interval | more)
    return {"dataset": _ref(data, 3), "recorded": interval, "estimates": estimates, "gamma": 0.99, "warnings": []}


def _manifest(number: int, version: int, data: str) -> dict[str, Any]:
    summary = {"count": 20, "mean": 9.5, "std": 1.5, "min": 3.0, "max": 20.0}
    file = {
        "path": data,
        "rows": 20,
        "episodes": 20,
        "steps": 600,
        "bytes": 30_000,
        "sha256": _hex(data),
        "footer_sha256": _hex(data, 1),
    }
    return {
        "manifest_version": 2,
        "version": version,
        "format": "table",
        "operation": {"name": "record", "version": 3, "config": {"episodes": 20, "seed": number}},
        "parents": [{"kind": "checkpoint", "uri": f"/runs/expert-{number}", "version": None, "fingerprint": _hex(number)[:16]}],
        "statistics": {"episodes": 20, "steps": 600, "terminated": 20, "truncated": 0, "returns": summary, "lengths": summary},
        "created_at": "2026-11-27T10:00:00Z",
        "provenance": {"python": "3.11.7", "torch": "2.13.0", "git": _hex(1)[:12]},
        "files": [file],
    }


def _ref(folder: Path, version: int) -> dict[str, Any]:
    return {
        "uri": str(folder),
        "version": version,
        "fingerprint": _hex(str(folder), version)[:16],
        "episodes": 20,
        "steps": 600,
        "bytes": 30_000,
    }


def _stored(place: Path, result: dict[str, Any]) -> None:
    _write(place, {"place": str(place), "identity": _hex(str(place))[:16], "made": {}, "result": result})


def _write(place: Path, values: dict[str, Any]) -> None:
    place.write_bytes(with_checksum(json.dumps(values, indent=2)))


def _hex(*values: object) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()


if __name__ == "__main__":
    main()
