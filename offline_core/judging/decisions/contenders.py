"""The policies of a decision, with their short names; weights are loaded when they are needed."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.registry import algorithms
from offline_core.learning.config import TrainingConfig
from offline_core.policies.manifest import PolicyManifest, find_policy

if TYPE_CHECKING:
    from offline_core.policies.policy import Policy

DIGEST = re.compile(r"(^|/)[0-9a-f]{16}(/|$)")
"""Names the folders of what a sweep trained, and says nothing to people."""


@dataclass(frozen=True)
class Contender:
    """A candidate."""

    uri: str
    name: str
    manifest: PolicyManifest

    @functools.cached_property
    def policy(self) -> Policy:
        """It with its weights.

        Raises:
            CheckpointError: It is not what the manifest says, or was replaced meanwhile.
        """
        from offline_core.policies.checkpoint import load_policy  # here, for what is reused needs no Torch

        return load_policy(self.uri, self.manifest)

    @property
    def parent(self) -> Parent:
        """It, as an input of the decision."""
        return self.manifest.parent_entry(self.uri)


def contenders_of(policies: Sequence[str]) -> list[Contender]:
    """The policies of these checkpoints or addresses.

    Raises:
        CheckpointError: One cannot be read.
        ConfigError: There is none, or one twice.
    """
    found = [find_policy(policy) for policy in policies]
    uris, manifests = [uri for uri, _ in found], [manifest for _, manifest in found]
    if not uris:
        raise ConfigError("There is no candidate: name one policy or more.")
    if len({manifest.fingerprint for manifest in manifests}) < len(uris):
        raise ConfigError(f"A candidate, or a copy of it, is named twice among {', '.join(policies)}: leave one.")
    names = readable_names(names_of(uris), manifests)
    return [Contender(*each) for each in zip(uris, names, manifests, strict=True)]


def names_of(uris: Sequence[str]) -> list[str]:
    """The parts of paths in which they differ, or the last one."""
    parts = [uri.rstrip("/").split("/") for uri in uris]
    if len(parts) == 1:
        return ["/".join(parts[0][-2:])]
    shortest = min(map(len, parts))
    begin = next((i for i in range(shortest) if len({each[i] for each in parts}) > 1), shortest - 1)
    end = next((i for i in range(shortest - begin) if len({each[-1 - i] for each in parts}) > 1), 0)
    return ["/".join(each[begin : len(each) - end]) or each[-1] for each in parts]


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
    others = algorithms().keys() - {given.get("algorithm", defaults.algorithm)}
    return dict(_flat(defaults.model_dump(mode="json", exclude={*others}))) | given


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
