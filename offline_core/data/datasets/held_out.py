"""The held-out side of a split, as what was made of its other side can find it."""

from __future__ import annotations

from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.errors import OfflineError

SPLIT, SIDES = "split", ("train", "held_out")
"""The stage that splits a dataset, and the folders of the two that it makes."""
WITHIN = ("prune", "compact", "convert")
"""Operations whose dataset has no episode that its only parent has not."""


def judged_by(dataset: Dataset) -> str | None:
    """What can judge a policy learned from a dataset: its environment, or the held-out side of its split; None if nothing.

    A held-out side judges, so that it is its own answer.
    """
    operation, environment = dataset.manifest.operation, dataset.manifest.environment
    if operation.name == SPLIT and operation.config.get("side") == SIDES[1]:
        return dataset.location.uri
    return held_out_beside(dataset.ref) if environment is None else environment.id


def held_out_beside(dataset: DatasetRef) -> str | None:
    """Return the URI of the latest held-out side of the split that made this train side, or what it was pruned from.

    None if the dataset is no train side, or no held-out side lies next to it.
    """
    try:
        train = open_committed(dataset.uri, dataset.version)
        while train.manifest.operation.name in WITHIN and len(train.manifest.parents) == 1:
            [parent] = train.manifest.parents
            train = open_committed(parent.uri, parent.version)
        held_out = open_committed(train.location.parent.child(SIDES[1]).uri)
    except OfflineError:
        return None
    sides = [(side.manifest.operation.name, side.manifest.operation.config.get("side")) for side in (train, held_out)]
    is_of_one = [parent.fingerprint for parent in train.manifest.parents] == [
        parent.fingerprint for parent in held_out.manifest.parents
    ]
    return held_out.location.uri if is_of_one and sides == [(SPLIT, side) for side in SIDES] else None
