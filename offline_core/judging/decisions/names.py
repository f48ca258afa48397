"""Names of candidates that a sweep trained: its folders are named by digests, which say nothing to people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from offline_core.data.datasets.manifest import Operation
from offline_core.learning.algorithms.registry import algorithm_configs
from offline_core.learning.config import TrainingConfig
from offline_core.policies.manifest import PolicyManifest

DIGEST = re.compile(r"(^|/)[0-9a-f]{16}(/|$)")


def readable_names(names: Sequence[str], manifests: Sequence[PolicyManifest]) -> list[str]:
    """The parameters in which the trainings differ, in place of names with a digest; the names if they are not different."""
    if not any(map(DIGEST.search, names)):
        return [*names]
    found = [_parameters(manifest.operation) for manifest in manifests]
    values = {
        path: {repr(each[path]) for each in found if path in each} for path in dict.fromkeys(p for each in found for p in each)
    }
    told = [", ".join(f"{path}={each[path]}" for path in each if len(values[path]) > 1) for each in found]
    return told if len({*told}) == len(told) and all(told) else [*names]


def _parameters(operation: Operation) -> dict[str, Any]:
    """By path, with the defaults that a training leaves out, but none of another algorithm."""
    given = dict(_flat(operation.config))
    if operation.stage != "train":
        return given
    defaults = TrainingConfig()
    others = algorithm_configs().keys() - {given.get("algorithm", defaults.algorithm)}
    return dict(_flat(defaults.model_dump(mode="json", exclude={*others}))) | given


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
