"""What prefect.yaml says, read as `prefect deploy` reads it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from prefect import Flow

PREFECT_FILE = Path(__file__).with_name("prefect.yaml")
Profile = Literal["default", "short", "smoke", "nightly", "distributed"]
PROFILES: tuple[Profile, ...] = get_args(Profile)


def definitions() -> list[dict[str, Any]]:
    """The deployments of prefect.yaml, in its order: name, entrypoint, parameters and so on."""
    return list(yaml.safe_load(PREFECT_FILE.read_text())["deployments"])


def full_name(flow: str, profile: Profile = "default") -> str:
    """What Prefect's commands call a deployment: "train/train-smoke"."""
    return f"{flow}/{flow}" if profile == "default" else f"{flow}/{flow}-{profile}"


def profile_of(definition: dict[str, Any]) -> Profile:
    """The profile that a deployment is tagged with."""
    profile: Profile
    [profile] = definition["tags"]
    return profile


def flow_of(entrypoint: str) -> Flow[..., Any]:
    """The flow at `folder/file.py:function`, relative to the repository's root.

    Raises:
        ImportError: there is no such file.
        AttributeError: it has no such function.
    """
    path, _, name = entrypoint.partition(":")
    flow: Flow[..., Any] = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)
    return flow
