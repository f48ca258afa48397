"""The policies to choose from: those that a training or a sweep left, as URIs of their checkpoints."""

from __future__ import annotations

from pydantic import BaseModel

from offline_core.data.datasets.result_cache import RESULT_FILE, stored_result
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.policies.manifest import POLICY_FILE, find_policy, read_policy_manifest
from offline_core.policies.registry.address import parse_address
from offline_core.policies.series import series_of

_NAMES_IN_SWEEP = 4
"""runs/<setting>/<seed>/<best or last>: a folder may have been moved, so only this much of a URI counts."""


class _Policy(BaseModel):
    checkpoint: str


class _Setting(BaseModel):
    runs: list[_Policy]


class _Sweep(BaseModel):
    """What the result of a sweep says of its policies."""

    settings: list[_Setting]


class _Training(BaseModel):
    """What only the result of a training says."""

    last_checkpoint: str


def candidates_of(uri: str) -> list[str]:
    """Return the checkpoints at `uri`, those of one fingerprint once.

    A checkpoint is itself, an address of the registry what it names; the folder of a training has its series, its best and
    its last policy, in this order; that of a sweep has the policy of each setting and seed, the best setting first.

    Raises:
        ConfigError: It is neither a checkpoint nor the folder of a finished training or sweep.
        CheckpointError: One of the policies is missing or cannot be read.
        StorageUnavailableError: The storage does not answer now.
    """
    place, address = Location.of(uri), parse_address(uri)
    if address is not None and address.exists:
        return [find_policy(uri)[0]]
    if place.child(POLICY_FILE).is_file():
        return [place.uri]
    found: dict[str, str] = {}
    for each in _left_in(place):
        found.setdefault(read_policy_manifest(each).fingerprint, each)
    return [*found.values()]


def _left_in(folder: Location) -> list[str]:
    result = folder.child(RESULT_FILE)
    if (sweep := stored_result(result, _Sweep)) is not None:
        scored = [run.checkpoint for setting in sweep.settings for run in setting.runs]
        return [folder.inside("/".join(each.split("/")[-_NAMES_IN_SWEEP:])).uri for each in scored]
    if stored_result(result, _Training) is not None:
        return [*(each.checkpoint for each in series_of(folder)), *(folder.child(name).uri for name in ("best", "last"))]
    raise ConfigError(
        f"{folder.uri} is neither a policy nor the folder of a finished training or sweep. Name the folder of a checkpoint "
        "(…/best), or the output of 'offline train' or 'offline sweep' once all of its runs are done."
    )
