"""Split by a hash of the id: an episode never changes sides, whatever comes later."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from offline_core.data.curation.config import SplitConfig
from offline_core.data.datasets.copying import NOWHERE, copy_episodes
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.deriving import written_by_file
from offline_core.data.datasets.episode_index import episode_index, places_of_ids, trajectory_of
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.writer import EpisodeWriter, WrittenFiles
from offline_core.data.episodes import columns
from offline_core.data.store.location import Location
from offline_core.errors import EmptyDatasetError


def held_out_by_id(ids: Iterable[str], config: SplitConfig) -> np.ndarray:
    """(episodes,) booleans: the hash of seed and id is below the share to hold out. Parts of a trajectory count as one id."""
    limit = int(config.held_out_fraction * 2**64)

    @functools.cache
    def is_held_out(trajectory: str) -> bool:
        digest = hashlib.blake2b(f"{config.seed}/id/{trajectory}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") < limit

    return np.array([is_held_out(trajectory_of(eps_id)) for eps_id in ids], bool)


def split_by_id(
    config: SplitConfig, source: Dataset, roots: Sequence[Location], operations: Sequence[Operation]
) -> tuple[list[WrittenFiles], int]:
    """(what is written of both sides, parts of trajectories beside the first); of an append only what is new is read.

    Raises:
        EmptyDatasetError: one of the sides would have no episode; nothing is written.
    """
    ids = places_of_ids(source)[columns.EPS_ID].to_list()
    held_out = held_out_by_id(ids, config)
    trajectories = len(set(map(trajectory_of, ids)))
    if held_out.all() or not held_out.any():
        raise EmptyDatasetError(
            f"Of the {trajectories:,} ids of {source.ref} all have their hash on one side of {config.held_out_fraction:g}. "
            "Choose another held_out_fraction or seed, or wait for more episodes."
        )

    def write(root: Location, part: Dataset, *, side: bool) -> WrittenFiles:
        with EpisodeWriter(root, "part", format=part.manifest.format, config=config.files) as writer:
            if part.manifest.files:
                index = episode_index(part)
                to = np.where(held_out_by_id(index[columns.EPS_ID].to_list(), config) == side, 0, NOWHERE)
                copy_episodes(part, index, to, [writer], what="split")
        return writer.written

    sides = zip(roots, operations, (False, True), strict=True)
    return [
        written_by_file(root.uri, root, operation, source, functools.partial(write, side=side), files=config.files)
        for root, operation, side in sides
    ], len(ids) - trajectories
