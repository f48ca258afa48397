"""Export episodes to one HDF5 file in D4RL's layout, `dataset.hdf5`: an array a column, all episodes concatenated.

Format: `d4rl/offline_env.py`. `terminals` and `timeouts` are the two flags, `next_observations` the observation after each
step. Further arrays are `eps_id`, `t` and the outputs of the policy, by name. Infos after a step are `infos/<key>`, with a mask
`infos/_<key>` of the steps that have one, as in gymnasium's vector environments. `sources/hdf5.py` reads all of it. The layout
cannot hold the infos of the reset and custom data.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.nested import Nested
from offline_core.data.formats.exports.episode_sink import writer
from offline_core.data.formats.exports.folder import FolderSink, check_whole
from offline_core.data.formats.exports.hdf5_output import Hdf5Output
from offline_core.data.formats.exports.info_arrays import check_names, info_arrays
from offline_core.data.store.location import Location
from offline_core.errors import EmptyDatasetError, EpisodeError, SchemaError, SpaceError
from offline_core.runtime.extras import require_extra

FILE = "dataset.hdf5"
INFOS_ARE_MAPS = "infos_are_maps"
"""An attribute of the file: its infos are read as infos, and not as further columns."""
CHUNK_BYTES = 2**18


@writer("d4rl", about="HDF5", opens="h5py.File('{}/dataset.hdf5')")
class D4rlSink(FolderSink):
    """Writes `dataset.hdf5` in the folder `uri`; see `EpisodeSink`."""

    def __init__(self, uri: str, *, complete: Callable[[Location], None] | None = None) -> None:
        with require_extra("hdf5"):
            import h5py
        self._h5py = h5py
        super().__init__(Location.of(uri), complete)
        self._file: Any = None
        self._rows = 0
        self._shapes: dict[str, tuple[Any, ...]] = {}

    def _open(self) -> None:
        self._output = Hdf5Output(self.root.child(FILE).path)
        self._file = self._h5py.File(self._output, "w")
        self._file.attrs[INFOS_ARE_MAPS] = True

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._output.close()

    def write(self, episodes: Sequence[Episode]) -> None:
        """Append episodes.

        Raises:
            EpisodeError: an episode is a piece, has infos that are not arrays, or names that HDF5 cannot hold.
            SchemaError: an episode differs from earlier ones in names, types or shapes.
            SpaceError: observations or actions are tuples, which D4RL cannot hold.
            StorageError: the file cannot be written.
        """
        check_whole(episodes, "D4RL")
        if self._file is None:
            with self._writing():
                self._open()
        for episode in episodes:
            arrays = _arrays(episode)
            shapes = {path: (array.dtype.kind, array.shape[1:]) for path, array in arrays.items()}
            self._shapes = self._shapes or shapes
            if other := min((p for p in shapes.keys() | self._shapes if shapes.get(p) != self._shapes.get(p)), default=None):
                raise SchemaError(f"Episode {episode.eps_id} and earlier ones differ in {other!r}; D4RL has one form.")
            infos = _infos(episode)
            with self._writing(), self._output.written():
                for path, array in (arrays | infos).items():
                    self._append(path, array, episode.eps_id)
                self._rows += len(episode)

    def _append(self, path: str, array: np.ndarray, eps_id: str) -> None:
        """Appends rows to a column; earlier rows that it lacks are zeros, and false in a mask."""
        text = array.dtype.kind == "U"
        if self._is_other_kind(path):
            raise EpisodeError(
                f"Episode {eps_id} has {path} in another form than earlier ones; all or none may have a dict there."
            )
        if path not in self._file:
            row = max(1, array[:1].nbytes)
            self._file.create_dataset(
                path,
                shape=(0, *array.shape[1:]),
                maxshape=(None, *array.shape[1:]),
                chunks=(max(1, CHUNK_BYTES // row), *array.shape[1:]),
                dtype=self._h5py.string_dtype() if text else array.dtype,
                compression="gzip",
                compression_opts=1,
            )
        stored = self._file[path]
        fits = stored.shape[1:] == array.shape[1:] and (text or np.can_cast(array.dtype, stored.dtype, "safe"))
        if not fits or text is not (stored.dtype.kind == "O"):
            raise EpisodeError(
                f"Episode {eps_id} has {path} as {array.dtype} of shape {array.shape[1:]}, earlier ones as {stored.dtype} of "
                f"{stored.shape[1:]}; D4RL has one form."
            )
        stored.resize(self._rows + len(array), axis=0)
        stored[self._rows :] = array.astype(object) if text else array

    def _is_other_kind(self, path: str) -> bool:
        """Whether the file has a group at `path`, or an array at a folder of it."""
        folders = itertools.accumulate(path.split("/")[:-1], "{}/{}".format)
        arrays = (isinstance(self._file.get(folder), self._h5py.Dataset) for folder in folders)
        return any(arrays) or isinstance(self._file.get(path), self._h5py.Group)

    def _finish(self) -> None:
        if not self._rows:
            raise EmptyDatasetError(f"No step was written to {self.uri}.")
        with self._writing(), self._output.written():
            self._file.visititems(lambda _, item: item.resize(self._rows, axis=0) if hasattr(item, "resize") else None)
            self._file.close()


def _arrays(episode: Episode) -> dict[str, np.ndarray]:
    """Return the arrays of an episode by their paths in the file."""
    last = np.arange(len(episode)) == len(episode) - 1
    arrays = {
        **_paths(episode.get_observations(slice(0, -1)), "observations", episode.eps_id),
        **_paths(episode.get_actions(), "actions", episode.eps_id),
        "rewards": episode.get_rewards(),
        "terminals": last & episode.terminated,
        "timeouts": last & episode.truncated,
        **_paths(episode.get_observations(slice(1, None)), "next_observations", episode.eps_id),
        columns.EPS_ID: np.full(len(episode), episode.eps_id),
        columns.T: np.arange(len(episode)),
    }
    check_names(episode.extras, f"outputs of episode {episode.eps_id}")
    for name in episode.extras:
        if name in arrays or name == columns.INFOS:
            raise EpisodeError(f"Episode {episode.eps_id} has an output {name!r}, a name that D4RL uses; rename it.")
        arrays |= _paths(episode.get_extra(name), name, episode.eps_id)
    return arrays


def _infos(episode: Episode) -> dict[str, np.ndarray]:
    """The infos after each step, with a mask of each key."""
    if episode.infos is None or not any(infos := episode.get_infos(slice(1, None))):
        return {}
    arrays = info_arrays(infos, f"infos of episode {episode.eps_id}")
    return _paths(_with_masks(arrays, len(episode)), columns.INFOS, episode.eps_id)


def _with_masks(arrays: dict[str, Any], steps: int) -> dict[str, Any]:
    """Add a mask for every key, as other episodes may lack the key."""
    masked: dict[str, Any] = {}
    for key, tree in arrays.items():
        if not (key.startswith("_") and key[1:] in arrays):
            masked[key] = _with_masks(tree, steps) if isinstance(tree, dict) else tree
            masked[f"_{key}"] = arrays.get(f"_{key}", np.ones(steps, bool))
    return masked


def _paths(tree: Nested, name: str, eps_id: str) -> dict[str, np.ndarray]:
    if isinstance(tree, dict):
        check_names(tree, f"{name} of episode {eps_id}")
        return {path: leaf for key, child in tree.items() for path, leaf in _paths(child, f"{name}/{key}", eps_id).items()}
    if isinstance(tree, tuple):
        raise SpaceError(f"{name} is a tuple, which D4RL cannot hold; export to minari or lerobot.")
    return {name: tree}
