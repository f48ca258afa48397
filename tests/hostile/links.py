"""Datasets and policies whose names and links lead elsewhere."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.evaluation import EvaluationConfig, evaluate
from offline_core.policies.policy import Policy
from tests.data.datasets.factories import episode, write_dataset


def inputs(folder: Path) -> dict[str, Callable[[], Any]]:
    canary, port = folder / "outside" / "canary", (folder / "port").read_text()
    write_dataset(folder / "data", [episode(1)])
    spaces = (gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2))
    save_policy(Policy(*spaces), str(folder / "policy"), operation=Operation(name="test"))
    names = [
        "../outside/canary",
        "a/../../outside/canary",
        "./../outside/canary",
        str(canary),
        f"//{canary}",
        f"file://{canary}",
        f"http://127.0.0.1:{port}/x",
        "s3://bucket/x",
        "~/.netrc",
        "..",
        ".",
        "/",
        "",
        "a\0b",
        "x" * 5000,
        "/dev/zero",
        "/proc/self/environ",
        "link/canary",
        "linked",
    ]
    calls: dict[str, Callable[[], Any]] = {}

    def read(place: Path) -> Any:
        return list(open_dataset(str(place)).episodes())

    def load(place: Path) -> Any:
        return load_policy(str(place)), evaluate(EvaluationConfig(episodes=1), policy=str(place))

    def copy(kind: str) -> Path:
        place = folder / f"{kind} {len(calls)}"
        shutil.copytree(folder / kind, place)
        (place / "link").symlink_to(canary.parent)
        (place / "linked").symlink_to(canary)
        return place

    for name in names:
        place = copy("data")
        change(place / "_versions" / "000001.json", lambda found, name=name: found["files"][0].update(path=name))  # type: ignore[misc]
        calls[f"file {name[:50]!r}"] = lambda place=place: read(place)  # type: ignore[misc]
        place = copy("policy")
        change(place / "policy.json", lambda found, name=name: found.update(weights_file=name))  # type: ignore[misc]
        calls[f"weights {name[:50]!r}"] = lambda place=place: load(place)  # type: ignore[misc]
    for target in (str(canary), "../outside/canary", "policy.json", "/dev/zero"):
        place = copy("policy")
        (place / "policy.json").unlink()
        (place / "policy.json").symlink_to(target)
        calls[f"policy.json -> {target}"] = lambda place=place: load(place)  # type: ignore[misc]
        place = copy("data")
        (place / "_versions" / "000001.json").unlink()
        (place / "_versions" / "000001.json").symlink_to(target)
        calls[f"manifest -> {target}"] = lambda place=place: read(place)  # type: ignore[misc]
    place = copy("data")
    shutil.rmtree(place / "_versions")
    (place / "_versions").symlink_to(canary.parent)
    calls["versions -> outside"] = lambda place=place: read(place)  # type: ignore[misc]
    place = copy("policy")
    (place / "policy.json").unlink()
    os.mkfifo(place / "policy.json")
    calls["policy.json is a pipe"] = lambda place=place: load(place)  # type: ignore[misc]
    return calls


def change(path: Path, how: Callable[[dict[str, Any]], None]) -> None:
    found = json.loads(path.read_text())
    how(found)
    path.write_text(json.dumps(found))
