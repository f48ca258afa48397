"""Read LeRobot datasets, versions 2.0 to 3.0 of their format: the Parquet files below `data/`, without cameras.

Format: `exports/lerobot.py`; versions 2 have a file an episode and the same columns. LeRobot has no observation after the last
step. Exports of this package keep it in `meta/episodes`, with infos, ids and both flags, and are read back exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, episodes_to_table
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.episodes.table import spaces_of
from offline_core.data.formats.sources.lerobot_episodes import EpisodeRows, exported_episodes
from offline_core.data.formats.sources.lerobot_frames import DONE, REWARD, SUCCESS, TERMINATED, TRUNCATED, Frames, Spaces
from offline_core.data.formats.sources.located_reader import LocatedReader
from offline_core.data.formats.sources.scans import SOURCE_ROW, ScannedFile
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import read_footer
from offline_core.errors import CorruptFileError, DatasetNotFoundError, SchemaError, within

INFO = "meta/info.json"
_VERSIONS = ("v2.", "v3.")
_PICTURES = ("video", "image")


@dataclass(frozen=True)
class LeRobotDataset(LocatedReader):
    """One dataset: the folder that holds `meta/` and `data/`. Tables have whole episodes under canonical names."""

    @property
    def notes(self) -> list[str]:
        """What the tables lack or assume, one sentence each.

        Raises:
            DataError: the dataset does not list its features.
        """
        features = self._features()
        notes = []
        if pictures := [name for name, feature in features.items() if feature["dtype"] in _PICTURES]:
            notes.append(f"Cameras of {self.uri} are left out: {', '.join(pictures)}.")
        if REWARD not in features:
            notes.append(f"{self.uri} has no {REWARD}: all rewards are 0.")
        if TERMINATED in features or TRUNCATED in features:
            return notes
        if DONE not in features:
            notes.append(f"{self.uri} has no {DONE}, so its episodes are read as truncated.")
        elif SUCCESS in features:
            notes.append(f"Episodes of {self.uri} that end without {SUCCESS} are truncated, the others terminated.")
        return notes

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`."""
        features = self._features()
        names = [name for name, feature in features.items() if feature["dtype"] not in _PICTURES]
        known, steps = EpisodeRows.of(self.location), 0
        several_tasks = self._info().get("total_tasks", 1) > 1
        for file in self._files():
            spaces = spaces_of(read_footer(file).schema.to_arrow_schema())
            for rows in self._whole_episodes(file, names):
                steps += rows.num_rows
                with within(uri=self.uri):
                    yield _table(Frames.of(rows, spaces, several_tasks=several_tasks), known, spaces)
        if steps != (expected := self._info().get("total_frames", steps)):
            raise CorruptFileError(f"{self.uri} has {steps:,} frames, and {INFO} says {expected:,}: fetch its files again.")

    def _whole_episodes(self, file: Location, names: list[str]) -> Iterator[pa.Table]:
        """Rows of a file in tables of whole episodes."""
        rest: pa.Table | None = None
        for batch in ScannedFile(file, "parquet", tuple(names), max_expansion=self.max_expansion).batches():
            if isinstance(batch, Unreadable):
                raise batch.located_error
            rows = batch.drop_columns([SOURCE_ROW])
            rows = rows if rest is None else pa.concat_tables([rest, rows])
            numbers = rows["episode_index"].to_numpy()
            last = int(np.argmax(numbers == numbers[-1]))
            if last:
                yield rows.slice(0, last)
            rest = rows.slice(last)
        if rest is not None:
            yield rest

    def _files(self) -> list[Location]:
        data = self.location.child("data")
        found = [data.child(name) for name in data.files() if name.endswith(".parquet")]
        if not found:
            raise DatasetNotFoundError(f"There are no Parquet files in {data.uri}: fetch the dataset with its data.")
        return found

    def _features(self) -> dict[str, Any]:
        features: Any = self._info().get("features")
        try:
            found = {str(name): dict(feature, dtype=str(feature["dtype"])) for name, feature in features.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(f"{self.uri}/{INFO} does not list the features of the dataset: {error!r}.") from error
        if not any(name == "action" or name.startswith("action.") for name in found):
            raise SchemaError(f"{self.uri} has no feature action; it has {', '.join(found)}.")
        return found

    def _info(self) -> dict[str, Any]:
        file = self.location.child(INFO)
        if not file.is_file():
            raise DatasetNotFoundError(
                f"There is no LeRobot dataset at {self.uri}; name the folder that holds meta/ and data/."
            )
        try:
            info = dict(json.loads(file.read()))
        except (TypeError, ValueError) as error:
            raise CorruptFileError(f"{file.uri} is not a JSON object: {error}.") from error
        if not str(version := info.get("codebase_version")).startswith(_VERSIONS):
            raise CorruptFileError(
                f"{self.uri} has version {version} of LeRobot's format; versions 2.0 to 3.0 are read. Convert it with LeRobot."
            )
        return info


def _table(frames: Frames, known: EpisodeRows | None, spaces: Spaces) -> pa.Table:
    """Steps under canonical names."""
    if known is not None:
        return episodes_to_table(exported_episodes(frames, known, spaces))
    steps = {
        columns.EPS_ID: frames.episode.astype(np.str_),
        columns.T: frames.t,
        columns.OBS: frames.observations,
        columns.ACTIONS: frames.actions,
        columns.REWARDS: frames.rewards,
        columns.TERMINATEDS: frames.terminated,
        columns.TRUNCATEDS: frames.truncated,
        **frames.extras,
    }
    return pa.table({name: to_arrow(tree, name) for name, tree in steps.items()})
