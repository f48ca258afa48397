"""Read Minari datasets with Minari, which reads local disks only: remote ones are copied first.

Format: Minari 0.5.4, `docs/content/dataset_standards.md`: HDF5, or Arrow and Parquet. An episode has T+1 observations and
infos, and infos may be masked as in `exports/minari.py`. Minari's Arrow reader takes every record batch for an episode: an
episode that was written as several (above 32,767 steps) shifts all later ones. The number of steps shows that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import Episode, columns, episodes_to_table, nested
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.episodes.codec import pack, unpack
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import space_from_json
from offline_core.data.formats.exports.info_arrays import info_rows
from offline_core.data.formats.exports.minari import SPACES
from offline_core.data.formats.sources.expansion import Expansion, check_hdf5
from offline_core.data.formats.sources.local_copy import local_folder
from offline_core.data.formats.sources.readers import BATCH_BYTES, FileReader, reader
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, DatasetNotFoundError, EpisodeError, OfflineError, SpaceError
from offline_core.runtime.extras import require_extra

_METADATA = "metadata.json"


@reader("minari", folder=lambda names: not {*names}.isdisjoint({"data/main_data.hdf5", "data/metadata.json"}))
@dataclass(frozen=True)
class MinariDataset(FileReader):
    """One dataset: the folder that holds `data/`, or `data/` itself.

    Tables have whole episodes under canonical names, and the spaces in their metadata. `eps_id` is `<dataset>/<number>`
    unless the dataset was exported by this package.
    """

    def read(self) -> Iterator[pa.Table]:
        """See `FileReader`; infos are structs if every step has the same keys, else msgpack bytes."""
        with _minari_errors(self.uri), local_folder(_data(self.location)) as data:
            expansion = Expansion(self.uri, sum(data.sizes().values()), self.max_expansion)
            for table in _tables(_episodes(_opened(data, dataclasses.replace(expansion)))):
                expansion.add(table.nbytes)
                yield table


def _data(location: Location) -> Location:
    data = location if location.child(_METADATA).is_file() else location.child("data")
    if not data.child(_METADATA).is_file():
        raise DatasetNotFoundError("There is no Minari dataset; name the folder that holds data/, such as door/human-v2.")
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


_Infos = dict[str, Nested] | None


def _episodes(dataset: Any) -> Iterator[tuple[Episode, _Infos]]:
    """(episode without infos, its infos as arrays of shape (T+1, …)); masked infos are in the episode."""
    count = dataset.storage.total_episodes
    attributes = dataset.storage.get_episode_metadata(range(count))
    own = dataset.storage.metadata.get(SPACES)  # exactly as they were before an export
    spaces = (dataset.observation_space, dataset.action_space) if own is None else [space_from_json(each) for each in own]
    stored = dataset.storage.get_episodes(range(count))
    for number, (data, attrs) in enumerate(zip(stored, attributes, strict=True)):
        eps_id = str(attrs.get(columns.EPS_ID) or f"{dataset.id}/{number}")
        if len(data["rewards"]) != int(attrs["total_steps"]):
            raise CorruptFileError(
                f"Episode {eps_id} has {attrs['total_steps']} steps, of which Minari reads {len(data['rewards'])}. Its reader "
                "of Arrow and Parquet mistakes parts of long episodes for episodes: write them in its HDF5 layout."
            )
        infos = _arrays(data["infos"] or {})
        episode = Episode(
            eps_id=eps_id,
            observations=_arrays(data["observations"]),
            actions=_arrays(data["actions"]),
            rewards=np.asarray(data["rewards"]),
            infos=info_rows(infos, len(data["rewards"]) + 1) if _is_masked(infos) else None,
            terminated=_at_end(data["terminations"], eps_id),
            truncated=_at_end(data["truncations"], eps_id),
            observation_space=spaces[0],
            action_space=spaces[1],
            agent_id=attrs.get(columns.AGENT_ID),
            module_id=attrs.get(columns.MODULE_ID),
            custom_data=_custom_data(attrs),
        )
        if problems := [*episode.length_problems(), *_info_problems(infos, len(episode) + 1)]:
            raise EpisodeError(f"Episode {eps_id} is not whole: {'; '.join(problems)}.")
        yield episode, None if episode.infos or not nested.leaves(infos) else infos


def _tables(episodes: Iterator[tuple[Episode, _Infos]]) -> Iterator[pa.Table]:
    """Consecutive episodes with infos of one structure, in tables of about `BATCH_BYTES`."""
    for _, alike in itertools.groupby(episodes, lambda pair: (pair[0].infos is None, _structure(pair[1]))):
        batch: list[tuple[Episode, _Infos]] = []
        size = 0
        for episode, infos in alike:
            batch.append((episode, infos))
            size += sum(array.nbytes for array in nested.leaves((episode.observations, episode.actions, infos or {})))
            if size >= BATCH_BYTES:
                yield _table(batch)
                batch, size = [], 0
        if batch:
            yield _table(batch)


def _structure(infos: _Infos) -> Any:
    return infos and nested.map_leaves(lambda array: (array.dtype, array.shape[1:]), infos)


def _table(batch: list[tuple[Episode, _Infos]]) -> pa.Table:
    episodes = [episode for episode, _ in batch]
    table = episodes_to_table(episodes)
    found = [infos for _, infos in batch if infos is not None]
    if not found:
        return table
    steps = to_arrow(nested.map_leaves(lambda *parts: np.concatenate([part[1:] for part in parts]), *found), columns.INFOS)
    cells: list[bytes | None] = [None] * table.num_rows
    first_rows = itertools.accumulate(map(len, episodes), initial=0)
    for row, infos in zip(first_rows, found, strict=False):  # first_rows also has the end
        cells[row] = pack(nested.map_leaves(lambda array: array[0], infos), where=columns.RESET_INFOS)
    table = table.append_column(pa.field(columns.INFOS, steps.type, nullable=False), steps)
    return table.append_column(columns.RESET_INFOS, pa.array(cells, pa.binary()))


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


def _at_end(flags: Any, eps_id: str) -> bool:
    flags = np.asarray(flags, bool)
    if flags[:-1].any():
        raise EpisodeError(f"Episode {eps_id} goes on after it ended at step {int(np.argmax(flags))}.")
    return bool(flags[-1:].any())


def _info_problems(infos: dict[str, Nested], expected: int) -> list[str]:
    found = {path: array.shape[:1] for path, array in nested.flatten(infos, columns.INFOS).items()}
    return [f"{(*shape, 'no')[0]} {path}; {expected} expected" for path, shape in found.items() if shape != (expected,)]


def _custom_data(attributes: Mapping[str, Any]) -> dict[str, Any]:
    packed = attributes.get(columns.CUSTOM_DATA)
    return dict(unpack(packed.tobytes())) if isinstance(packed, np.void) else {}


@contextlib.contextmanager
def _minari_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except OfflineError as error:
        raise error.within(uri, uri=uri) from error
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # h5py, Arrow, Pillow and Minari raise any class
        raise CorruptFileError(f"Minari cannot read {uri}: {error!r}. Fetch it again, or see 'minari show'.") from error
