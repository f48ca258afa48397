"""Clones that stand for the behaviour that recorded a dataset, so that it can be judged on another log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offline_core.data.curation.config import SplitConfig
from offline_core.data.curation.split import split
from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_dataset
from offline_core.data.datasets.manifest import Operation, identity_of
from offline_core.data.store.location import Location
from offline_core.judging.estimation.behaviour import examine, model_of_behaviour
from offline_core.judging.estimation.contenders import BehaviourClone, Contender
from offline_core.policies.checkpoint import load_policy

SIDES, CLONES = "sides", "clones"
"""Folders of both sides of what is split, and of clones."""
HELD_OUT = 0.2
"""Share of a dataset's episodes by which the clone of its behaviour is stopped and examined."""


def halved(dataset: Dataset, halves: SplitConfig, folder: Location, *, stage: str) -> tuple[DatasetRef, DatasetRef]:
    """(the side that is fitted or selects, the side that is held out) of a dataset, below a folder.

    Arguments:
        stage: that asks for it.
    """
    operation = Operation.of(stage, halves, source=dataset.manifest.fingerprint)
    output = folder.child(f"{SIDES}/{identity_of(operation, [])}").uri
    parted = split(halves, dataset=dataset.location.uri, version=dataset.manifest.version, output=output)
    return parted.train, parted.held_out


def with_clones(
    contenders: Sequence[Contender], folder: Location, *, by: str, stage: str, updates: int, seed: int
) -> list[Contender]:
    """The same contenders, in which each behaviour of a dataset has a clone.

    A clone is fitted to one side of its dataset, and examined on the other.

    Arguments:
        folder: where sides and clones are kept.
        by: see `SplitConfig.by`.
        updates: of a clone, at most.
    """
    halves, completed = SplitConfig(held_out_fraction=HELD_OUT, by=by, seed=seed), []
    for contender in contenders:
        if contender.recording is not None:
            own, held_out = halved(contender.recording, halves, folder, stage=stage)
            operation = Operation.of(stage, halves, source=contender.fingerprint, updates=updates)
            output = folder.child(f"{CLONES}/{identity_of(operation, [])}").uri  # what names it finds the same weights later
            checkpoint = model_of_behaviour(own, held_out, output, updates=updates, seed=seed)
            examined = examine(load_policy(checkpoint), open_dataset(held_out.uri, held_out.version), recorded=False)
            contender = replace(contender, clone=BehaviourClone(checkpoint, examined.error, examined.steps))
        completed.append(contender)
    return completed
