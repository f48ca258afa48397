"""What users give to stages: configs, data and policies, in any of the forms that `stages` names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel

from offline_core.data.datasets import dataset as datasets
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.errors import ConfigError
from offline_core.runtime.config import Config, parse

Path: TypeAlias = str | os.PathLike[str]
"""A path, or a URI such as `s3://bucket/runs`."""
Data: TypeAlias = Path | DatasetRef | datasets.Dataset | BaseModel
Trained: TypeAlias = Path | BaseModel
AnyConfig = TypeVar("AnyConfig", bound=Config)
Given: TypeAlias = AnyConfig | Mapping[str, Any] | None
"""A config, its fields by name, or None: the defaults."""


def config_of(kind: type[AnyConfig], config: Given[AnyConfig], parameters: dict[str, Any]) -> AnyConfig:
    """The config of a stage; single parameters win over a whole config or mapping."""
    if isinstance(config, kind) and not parameters:
        return config
    if isinstance(config, Config):
        if not isinstance(config, kind):
            raise ConfigError(f"config is a {type(config).__name__}; this stage takes a {kind.__name__}.")
        config = {name: getattr(config, name) for name in config.model_fields_set}
    return parse(kind, {**(config or {}), **parameters})


def place_of(data: Data) -> tuple[str, int | None]:
    """(URI, version) of a dataset; None: the latest version."""
    if isinstance(data, str | os.PathLike):
        return os.fspath(data), None
    if isinstance(data, datasets.Dataset):
        return data.location.uri, data.manifest.version
    found = data if isinstance(data, DatasetRef) else getattr(data, "dataset", None)
    if isinstance(found, DatasetRef):
        return found.uri, found.version
    raise ConfigError(f"A {type(data).__name__} names no dataset; give a path, a Dataset, or the result of a stage.")


def latest_of(data: Data) -> str:
    """The URI of data that has to be the latest version."""
    uri, version = place_of(data)
    if version not in (None, 0, *datasets.versions(uri)[-1:]):
        raise ConfigError(f"{uri} has a later version than {version}, and merge takes the latest; split or prune it first.")
    return uri


def checkpoint_of(policy: Trained) -> str:
    """The URI of a policy."""
    if isinstance(policy, str | os.PathLike):
        return os.fspath(policy)
    if isinstance(found := getattr(policy, "checkpoint", None), str):
        return found
    raise ConfigError(
        f"A {type(policy).__name__} names no checkpoint; give its path, or the result of a stage that trained a policy."
    )


def checkpoints_of(policies: Trained | Sequence[Trained]) -> list[str]:
    """The URIs of policies; the result of a sweep means the best policy of each setting."""
    if isinstance(policies, Sequence) and not isinstance(policies, str):
        return [uri for each in policies for uri in checkpoints_of(each)]
    found = getattr(policies, "checkpoints", None)
    return [*found] if isinstance(found, list) else [checkpoint_of(policies)]
