"""Episodes and datasets to store, and places that cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import VERSIONS, Dataset
from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode
from offline_core.data.episodes.codecs import Format
from offline_core.data.store.json_files import with_checksum

FORMATS: tuple[Format, ...] = ("episodes", "table")
OBSERVATIONS = spaces.Box(-np.inf, np.inf, (4,), np.float32)
ACTIONS = spaces.Discrete(2)


def episode(number: int, steps: int = 7, **changes: Any) -> Episode:
    """Random values that depend on `number` alone; rewards are multiples of 1/4, so that any order sums them up alike."""
    rng = np.random.default_rng(number)
    whole: dict[str, Any] = {
        "eps_id": f"episode-{number:04}",
        "observations": rng.standard_normal((steps + 1, 4)).astype(np.float32),
        "actions": rng.integers(0, 2, steps),
        "rewards": rng.integers(-40, 40, steps) / 4,
        "extras": {"action_logp": rng.standard_normal(steps).astype(np.float32)},
        "terminated": number % 2 == 0,
        "truncated": number % 2 == 1,
        "observation_space": OBSERVATIONS,
        "action_space": ACTIONS,
    }
    return Episode(**whole | changes)


def write_files(
    folder: Path | str, episodes: Sequence[Episode], format: Format, *, batch: int = 100, **files: Any
) -> EpisodeWriter:
    """Writes the episodes, `batch` of them at a time; no version is committed."""
    with EpisodeWriter(prepare_dataset(str(folder)), "part", format=format, config=FilesConfig(**files)) as writer:
        for start in range(0, len(episodes), batch):
            writer.write(episodes[start : start + batch])
    return writer


def write_dataset(
    folder: Path | str,
    episodes: Sequence[Episode],
    format: Format = "episodes",
    *,
    batch: int = 100,
    parents: Sequence[Parent] = (),
    **files: Any,
) -> Dataset:
    """The episodes as a committed version."""
    writer = write_files(folder, episodes, format, batch=batch, **files)
    return commit(
        str(folder),
        writer.files,
        format=format,
        operation=Operation(name="test"),
        statistics=Statistics.of(writer.summaries),
        observation_space=episodes[0].observation_space,
        action_space=episodes[0].action_space,
        parents=parents,
    )


def found(folder: Path) -> list[str]:
    """Every file below `folder`, hidden ones included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def cut_in_half(path: str | Path) -> None:
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[: len(whole) // 2])


def garble(path: str | Path, start: int, stop: int) -> None:
    """Replaces some bytes of a file by others; negative positions count from its end."""
    data = bytearray(Path(path).read_bytes())
    data[start:stop] = bytes(byte ^ 0xFF for byte in data[start:stop])
    Path(path).write_bytes(data)


def edit_json(path: Path, **fields: Any) -> None:
    """As a program that knows how checksums are made."""
    values = {name: value for name, value in json.loads(path.read_text()).items() if name != "checksum"}
    path.write_bytes(with_checksum(json.dumps(values | fields)))


def replace_file(dataset: Dataset, table: pa.Table) -> None:
    """Writes other rows to the only file of a version, as a release did that kept no hash of footers."""
    manifest = dataset.location.child(f"{VERSIONS}/{dataset.manifest.version:06d}.json").path
    [path], [entry] = dataset.paths, json.loads(Path(manifest).read_text())["files"]
    pq.write_table(table, path)
    edit_json(Path(manifest), files=[entry | {"footer_sha256": None}])


def flip_bit(path: str | Path, bit: int) -> None:
    """Changes one bit of a file in its place."""
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0] ^ (1 << bit % 8)
        file.seek(bit // 8)
        file.write(bytes([byte]))


def write_items(path: Path, items: Sequence[bytes]) -> None:
    """A file as RLlib writes it: one binary column."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"item": pa.array(items, pa.binary())}), path)


class Bomb:
    """Unpickling it makes a folder."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def rllib_states(folder: Path) -> Iterator[dict[str, Any]]:
    """What stands in RLlib's episode files, decoded by the libraries that RLlib itself uses."""
    for path in sorted(folder.rglob("*.parquet")):
        for item in pq.read_table(path)["item"].to_pylist():
            yield msgpack.unpackb(item, object_hook=msgpack_numpy.decode, strict_map_key=False)


def copy_tree(source: Path, target: Path) -> None:
    """A copy without the mode of the original, which may be read-only."""
    for path in source.rglob("*"):
        if path.is_file():
            copied = target / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(path.read_bytes())


def in_small_filesystem(folder: Path, script: str, *, kilobytes: int = 512) -> Any:
    """Runs `script` with a filesystem of that size at `folder` (its variable `root`); what it assigns to `result`.

    The filesystem is mounted in a namespace of its own: nobody else sees it, and it is gone when the script ends.
    """
    mount = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    mounted = f"mount -t tmpfs -o size={kilobytes}k tmpfs '{folder}' && "
    try:
        possible = subprocess.run([*mount, f"{mounted} true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no 'unshare' to mount a small filesystem with")
    if possible.returncode:
        pytest.skip(f"a small filesystem cannot be mounted here: {possible.stderr.strip()}")
    code = f"root = {str(folder)!r}\n{script}\nimport json\nprint(json.dumps(result))"
    done = subprocess.run(
        [*mount, f"{mounted} '{sys.executable}' -W error -"], input=code, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)
