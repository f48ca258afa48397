"""Read Minari datasets with Minari, which reads local disks only: remote ones are copied first.

Format: Minari 0.5.4, `docs/content/dataset_standards.md`: HDF5, or Arrow and Parquet. An episode has T+1 observations and
infos, and infos may be masked as in `exports/minari.py`. Minari's Arrow reader takes every record batch for an episode: an
episode that was written as several (above 32,767 steps) shifts all later ones. The number of steps shows that.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.about import About
from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.episodes.episode_codec import unpack
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import space_from_json, space_metadata
from offline_core.data.formats.exports.info_arrays import info_rows
from offline_core.data.formats.exports.minari import SPACES
from offline_core.data.formats.sources.expansion import Expansion, check_hdf5
from offline_core.data.formats.sources.local_copy import local_folder
from offline_core.data.formats.sources.readers import BATCH_BYTES, FileReader, reader
from offline_core.data.formats.sources.whole_episodes import episode_steps, joined, with_details
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, DatasetNotFoundError, EpisodeError, SpaceError, within
from offline_core.runtime.extras import require_extra

_METADATA = "metadata.json"
_NAMES = {
    columns.OBS: "observations",
    columns.ACTIONS: "actions",
    columns.REWARDS: "rewards",
    columns.TERMINATEDS: "terminations",
    columns.TRUNCATEDS: "truncations",
}


@reader("minari", folder=lambda names: not {*names}.isdisjoint({"data/main_data.hdf5", "data/metadata.json"}))
@dataclass(frozen=True)
class MinariDataset(FileReader):
    """One dataset: the folder that holds `data/`, or `data/` itself.

    Tables have whole episodes under canonical names, and the spaces in their metadata. `eps_id` is `<dataset>/<number>`
    unless the dataset was exported by this package.
    """

    @property
    def about(self) -> About:
        """Minari has author and description; an export adds license and source."""
        metadata = json.loads(_data(self.location).child(_METADATA).read())
        authors = metadata.get("author")
        if isinstance(authors, list):
            authors = ", ".join(sorted(map(str, authors)))
        return About.of({**metadata, "author": authors})

    def read(self) -> Iterator[pa.Table]:
        """See `FileReader`; infos are structs if every step has the same keys, else msgpack bytes."""
        with within(uri=self.uri), local_folder(_data(self.location)) as data:
            expansion = Expansion(self.uri, sum(data.sizes().values()), self.max_expansion)
            for table in joined(_episodes(_opened(data, dataclasses.replace(expansion))), BATCH_BYTES):
                expansion.add(table.nbytes)
                yield table


def _data(location: Location) -> Location:
    data = location if location.child(_METADATA).is_file() else location.child("data")
    if not data.child(_METADATA).is_file():
        raise DatasetNotFoundError(
            f"There is no Minari dataset at {location.uri}; name the folder that holds data/, such as door/human-v2."
        )
    return data


def _opened(data: Location, expansion: Expansion) -> Any:
    """The `minari.MinariDataset`.

    A dataset without spaces is refused: Minari would make its environment to learn them, which runs code.
    """
    metadata = json.loads(data.child(_METADATA).read())
    if missing := {"observation_space", "action_space"} - metadata.keys():
        raise SpaceError(f"The dataset has no {' and no '.join(sorted(missing))} in its metadata; write them there first.")
    with require_extra("minari"):
        import h5py
        import minari
    if (hdf5 := data.child("main_data.hdf5")).is_file():
        with h5py.File(hdf5.path, "r") as file:
            check_hdf5(file, expansion)
    return minari.MinariDataset(data.path)


def _episodes(dataset: Any) -> Iterator[pa.Table]:
    """Yield the steps of each episode, with the spaces; infos are arrays of shape (T+1, …), and masked ones dicts."""
    count = dataset.storage.total_episodes
    attributes = dataset.storage.get_episode_metadata(range(count))
    own = dataset.storage.metadata.get(SPACES)  # exactly as they were before an export
    spaces = (dataset.observation_space, dataset.action_space) if own is None else [space_from_json(encoded) for encoded in own]
    metadata = space_metadata(*spaces)
    for number, (data, attrs) in enumerate(zip(dataset.storage.get_episodes(range(count)), attributes, strict=True)):
        eps_id, length = str(attrs.get(columns.EPS_ID) or f"{dataset.id}/{number}"), len(data["rewards"])
        if length != int(attrs["total_steps"]):
            raise CorruptFileError(
                f"Episode {eps_id} has {attrs['total_steps']} steps, of which Minari reads {length}. Its reader "
                "of Arrow and Parquet mistakes parts of long episodes for episodes: write them in its HDF5 layout."
            )
        arrays = {name: _arrays(data[key]) for name, key in _NAMES.items()}
        details = {name: attrs.get(name) for name in (columns.AGENT_ID, columns.MODULE_ID)}
        details |= {columns.CUSTOM_DATA: _custom_data(attrs)}
        if _is_masked(infos := _arrays(data["infos"] or {})):
            details[columns.INFOS] = info_rows(infos, length + 1)
        elif nested.leaves(infos):
            arrays[columns.INFOS] = infos
            details[columns.RESET_INFOS] = nested.map_leaves(lambda array: array[0], infos)
        steps, _ = episode_steps(arrays, eps_id)
        ends = np.asarray(steps[columns.TERMINATEDS], bool) | np.asarray(steps[columns.TRUNCATEDS], bool)
        if columns.NEW_OBS not in steps or ends[:-1].any():
            problem = f"goes on after it ended at step {np.argmax(ends)}" if ends[:-1].any() else "has no last observation"
            raise EpisodeError(f"Episode {eps_id} {problem}.")
        table = pa.table({name: to_arrow(tree, name) for name, tree in steps.items()}, metadata=metadata)
        yield with_details(table, [length], [details])


def _arrays(tree: Any) -> Nested:
    """The values that Minari read, with lists and encoded text as arrays."""
    if isinstance(tree, Mapping):
        return {key: _arrays(child) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map(_arrays, tree))
    array = np.asarray(tree)
    if array.dtype == object and array.size and isinstance(array.flat[0], bytes):
        return np.array([value.decode() for value in array.flat]).reshape(array.shape)
    return array


def _is_masked(infos: Any) -> bool:
    if not isinstance(infos, dict):
        return False
    return any(f"_{key}" in infos or _is_masked(child) for key, child in infos.items())


def _custom_data(attributes: Mapping[str, Any]) -> dict[str, Any]:
    packed = attributes.get(columns.CUSTOM_DATA)
    return dict(unpack(packed.tobytes())) if isinstance(packed, np.void) else {}
