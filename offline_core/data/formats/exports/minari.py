"""Export episodes to a Minari dataset, written by Minari.

Format: Minari 0.5.4, `docs/content/dataset_standards.md`, in its HDF5 layout. Images are stored exactly, not as JPEG.
Infos of only some steps, and extra outputs of the policy, become infos of all T+1 time steps with a mask `_<key>`, as in
gymnasium's vector environments. An extra output of step t is at t+1, like the info of that step. `eps_id`, agent, module
and custom data become attributes of the episode. `sources/minari.py` reads all of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.data.datasets.about import About
from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.episodes.episode_codec import pack
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import StoredSpaces, space_to_json
from offline_core.data.formats.exports.episode_sink import writer
from offline_core.data.formats.exports.folder import FolderSink, check_whole
from offline_core.data.formats.exports.hdf5_output import Hdf5Output
from offline_core.data.formats.exports.info_arrays import check_names, info_arrays
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, EmptyDatasetError, EnvironmentNotFoundError, EpisodeError, SpaceError
from offline_core.runtime.config import EnvironmentSpec, parse
from offline_core.runtime.extras import require_extra
from offline_core.secrets import masked, masked_text

SPACES = "offline_spaces"
"""In Minari's metadata: observation and action space, exactly."""
DEFAULT_ID = "offline/dataset-v0"
MAX_ATTRIBUTE_BYTES = 60_000
"""HDF5 keeps an attribute of up to 64 KiB, its own overhead included."""


@writer(
    "minari",
    arguments='{"dataset_id": "robot/pick-v0"}',
    opens="minari.MinariDataset('{}/data')",
    folder=lambda arguments: f"{arguments.get('dataset_id', DEFAULT_ID)}/",
    names_environment=True,
    says_about=True,
)
class MinariSink(FolderSink):
    """Writes dataset `dataset_id` below the folder `uri`, where `MINARI_DATASETS_PATH` can point to; see `EpisodeSink`.

    `complete` is called with the folder before it becomes visible, see `FolderSink`.

    Raises:
        ConfigError: the id is not `(namespace/)name-v<number>`, or the environment cannot be made.
    """

    def __init__(
        self,
        uri: str,
        *,
        dataset_id: str = DEFAULT_ID,
        environment: EnvironmentSpec | dict[str, Any] | None = None,
        about: About = About(),
        complete: Callable[[Location], None] | None = None,
    ) -> None:
        self.dataset_id = _checked_id(dataset_id)
        super().__init__(Location.of(uri).child(dataset_id), complete)
        if isinstance(environment, dict):
            environment = parse(EnvironmentSpec, environment)
        self.environment = None if environment is None else _gymnasium_spec(environment)
        self._about = about
        self._storage: Any = None
        self._output: Any = None
        self._spaces: StoredSpaces = (None, None)
        self._written = 0

    def write(self, episodes: Sequence[Episode]) -> None:
        """Appends episodes.

        Raises:
            EpisodeError: one is a piece, or has infos or custom data that Minari cannot hold.
            SpaceError: one has no spaces, other ones than earlier episodes, or ones that Minari does not support.
            StorageError: the output cannot be written.
        """
        if not episodes:
            return
        check_whole(episodes, "Minari")
        if self._storage is None:
            self._spaces = (episodes[0].observation_space, episodes[0].action_space)
            self._storage = self._created()
        for episode in episodes:
            self._check_spaces(episode)
        buffers = [_buffer(episode) for episode in episodes]
        attributes = [_attributes(episode) for episode in episodes]
        with self._writing(), _episode_errors(self.uri), self._output.written():
            self._storage.update_episodes(buffers)
            self._storage.update_episode_metadata(attributes, range(self._written, self._written + len(episodes)))
        self._written += len(episodes)

    def _finish(self) -> None:
        if not self._written:
            raise EmptyDatasetError(f"No episode was written to {self.uri}, and Minari has no empty datasets.")

    def _close(self) -> None:
        if self._output is not None:
            self._output.close()

    def _created(self) -> Any:
        import h5py
        import minari
        from minari.dataset.minari_storage import MinariStorage

        observation_space, action_space = self._spaces
        if observation_space is None or action_space is None:
            raise SpaceError("Episodes for Minari need both spaces; take them from a dataset that has them, or set them.")
        try:
            with self._writing():
                storage = MinariStorage.new(
                    self.root.child("data").path,
                    observation_space=observation_space,
                    action_space=action_space,
                    env_spec=self.environment,
                    jpeg_encoding=False,
                )
                # Minari itself sorts the keys of a Dict.
                stated = {SPACES: [space_to_json(observation_space), space_to_json(action_space)]}
                named = {"dataset_id": self.dataset_id, "minari_version": minari.__version__}
                said: dict[str, Any] = dict(self._about.facts)
                said |= {"author": {said["author"]}} if "author" in said else {}  # Minari has a set of them
                storage.update_metadata({**said, **named, **stated})
                self._output = Hdf5Output(str(storage._file_path))
                with self._output.written() as output:
                    h5py.File(output, "w", track_order=True).close()
        except NotImplementedError as error:
            raise SpaceError(f"Minari cannot hold these spaces: {error}.") from error
        storage._file_path = self._output  # Minari opens it for each call
        return storage

    def _check_spaces(self, episode: Episode) -> None:
        for what, space, expected in zip(
            ("observation", "action"), (episode.observation_space, episode.action_space), self._spaces, strict=True
        ):
            if space is not expected and space != expected:
                raise SpaceError(f"Episode {episode.eps_id} has {what} space {space}, earlier ones {expected}; Minari has one.")


def _checked_id(dataset_id: str) -> str:
    with require_extra("minari"):
        from minari.dataset.minari_dataset import parse_dataset_id
    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError) as error:  # the latter when the version is missing
        raise ConfigError(f"{dataset_id!r} is not a Minari id, such as cartpole/expert-v0.") from error
    return dataset_id


def _gymnasium_spec(environment: EnvironmentSpec) -> Any:
    """Gymnasium's spec of the environment, with arguments and wrappers."""
    try:
        env: Any = gym.make(environment.id, **environment.kwargs)
        env.close()
        env.spec.to_json()
    except (gym.error.Error, ImportError) as error:
        raise EnvironmentNotFoundError(f"Environment {environment.id!r} cannot be named in the dataset: {error}") from error
    except Exception as error:  # the environment's code may raise any class
        told = masked_text(repr(error), environment.kwargs)
        raise ConfigError(
            f"Environment {environment.id!r} cannot be made with {masked(environment.kwargs, arguments=True)}: {told}"
        ) from error
    return dataclasses.replace(env.spec, kwargs=masked(env.spec.kwargs, arguments=True))


def _buffer(episode: Episode) -> Any:
    from minari.data_collector import EpisodeBuffer

    flags = np.zeros((2, len(episode)), bool)
    flags[:, -1] = episode.terminated, episode.truncated
    return EpisodeBuffer(
        observations=_plain(episode.observations, "observations"),
        actions=_plain(episode.actions, "actions"),
        rewards=episode.rewards,
        terminations=flags[0],
        truncations=flags[1],
        infos=_plain(_infos(episode), "infos") or None,
    )


def _plain(tree: Nested, what: str) -> Nested:
    """Return a tree with arrays of text as lists, which h5py stores as text."""
    if isinstance(tree, dict):
        check_names(tree, what)
        return {key: _plain(child, f"{what}/{key}") for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_plain(child, f"{what}/{i}") for i, child in enumerate(tree))
    return tree.tolist() if tree.dtype.kind == "U" else tree


def _infos(episode: Episode) -> dict[str, Nested]:
    """Infos and extra outputs as arrays of shape (T+1, …)."""
    columns_ = {} if episode.infos is None else info_arrays(episode.infos, f"infos of episode {episode.eps_id}")
    for name, tree in episode.extras.items():
        if {name, f"_{name}"} & columns_.keys():
            raise EpisodeError(f"Episode {episode.eps_id} has both infos and an extra output {name!r}; rename one for Minari.")
        columns_[name] = nested.map_leaves(lambda array: np.concatenate([np.zeros_like(array[:1]), array]), tree)
        columns_[f"_{name}"] = np.arange(len(episode) + 1) > 0
    return columns_


def _attributes(episode: Episode) -> dict[str, Any]:
    named = {columns.EPS_ID: episode.eps_id, columns.AGENT_ID: episode.agent_id, columns.MODULE_ID: episode.module_id}
    attributes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if episode.custom_data:
        packed = pack(episode.custom_data, where=f"The custom data of episode {episode.eps_id}")
        if len(packed) > MAX_ATTRIBUTE_BYTES:
            raise EpisodeError(f"Episode {episode.eps_id} has {len(packed)} bytes of custom data; Minari holds 60,000.")
        attributes[columns.CUSTOM_DATA] = np.void(packed)
    return attributes


@contextlib.contextmanager
def _episode_errors(uri: str) -> Iterator[None]:
    """Raise errors for values that HDF5 cannot hold, which Minari finds while it writes."""
    try:
        yield
    except (TypeError, ValueError, AssertionError, KeyError, IndexError) as error:
        raise EpisodeError(f"Minari cannot write these episodes to {uri}: {error!r}.") from error
