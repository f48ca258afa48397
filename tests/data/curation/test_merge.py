"""Merges: every episode of all datasets, each once, and no mixture of what does not belong together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from offline_core.data.curation.config import MergeConfig
from offline_core.data.curation.merge import MergeResult, merge
from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.dataset import Dataset, open_dataset, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.episodes import Episode
from offline_core.data.episodes.codecs import Format
from offline_core.errors import ConfigError, EpisodeError, SchemaError
from offline_core.runtime.config import EnvironmentSpec
from tests.data.datasets.factories import FORMATS, episode, write_files
from tests.data.importing.factories import run_import, steps, without, write_rows


def write(folder: Path, some: list[Episode], format: Format = "episodes", environment: str = "A-v0") -> Dataset:
    writer = write_files(folder, some, format, batch=3)
    return commit(
        str(folder),
        writer.files,
        format=format,
        operation=Operation(name="test"),
        statistics=writer.statistics,
        environment=EnvironmentSpec(id=environment),
        observation_space=some[0].observation_space,
        action_space=some[0].action_space,
    )


def run_merge(folder: Path, *names: str) -> MergeResult:
    return merge(MergeConfig(), datasets=[str(folder / name) for name in names], output=str(folder / "out"))


def kept(result: MergeResult) -> list[Episode]:
    return list(open_dataset(result.dataset.uri, result.dataset.version).episodes())


@pytest.mark.parametrize("format", FORMATS)
def test_all_episodes_in_the_order_of_the_datasets(tmp_path: Path, format: Format) -> None:
    some = [episode(i, 1 + i % 5, infos=[{"i": i}] * (2 + i % 5) if i > 15 else None) for i in range(24)]
    sources = [write(tmp_path / "b", some[:9], format), write(tmp_path / "a", some[9:], format)]
    result = run_merge(tmp_path, "b", "a")
    assert kept(result) == some
    merged = open_dataset(str(tmp_path / "out"))
    assert (result.dataset, result.sources, result.duplicates) == (merged.ref, [s.ref for s in sources], 0)
    assert result.before == [source.manifest.statistics for source in sources]
    assert merged.manifest.parents == [source.parent_entry for source in sources]
    assert merged.manifest.operation.name == "merge"
    assert merged.manifest.environment == EnvironmentSpec(id="A-v0")
    assert merged.manifest.observation_space == sources[0].manifest.observation_space is not None
    whole = write(tmp_path / "whole", some, format).manifest.statistics
    assert result.after.columns is not None and whole.columns is not None
    assert result.after.model_copy(update={"columns": None}) == whole.model_copy(update={"columns": None})
    assert result.after.columns["obs"].histogram == whole.columns["obs"].histogram


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_in_two_datasets_is_there_once(tmp_path: Path, format: Format) -> None:
    some = [episode(i) for i in range(8)]
    write(tmp_path / "a", some[:5], format)
    write(tmp_path / "b", [some[6], *some[3:6], some[7]], format)
    result = run_merge(tmp_path, "a", "b", "a")
    assert kept(result) == [*some[:5], some[6], some[5], some[7]]
    assert result.duplicates == 2 + 5
    assert sum(before.episodes for before in result.before) == result.after.episodes + result.duplicates
    assert format == "table" or result.after.columns is None, "nobody has looked at the ones that are left"


@pytest.mark.parametrize("format", FORMATS)
def test_one_id_for_two_episodes(tmp_path: Path, format: Format) -> None:
    write(tmp_path / "a", [episode(i) for i in range(5)], format)
    write(tmp_path / "b", [episode(9), episode(3, rewards=np.zeros(7)), episode(4, rewards=np.zeros(7))], format)
    message = f"2 ids stand for different episodes, episode-0003 first: it is one episode in {tmp_path}/a and another in "
    with pytest.raises(EpisodeError, match=rf"{message}{tmp_path}/b\. .* episodes: \{{ids_per: file\}}"):
        run_merge(tmp_path, "a", "b")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("format", FORMATS)
def test_pieces_of_one_episode(tmp_path: Path, format: Format) -> None:
    whole = episode(0, 9)
    write(tmp_path / "a", [whole.slice(0, 4), whole.slice(6, 9)], format)
    write(tmp_path / "b", [whole.slice(4, 6)], format)
    assert kept(run_merge(tmp_path, "a", "b")) == [whole.slice(0, 4), whole.slice(6, 9), whole.slice(4, 6)]


@pytest.mark.parametrize("format", FORMATS)
def test_all_differences_are_named(tmp_path: Path, format: Format) -> None:
    changed: dict[str, Any] = {
        "observations": np.zeros((8, 5)),
        "observation_space": gym.spaces.Box(-1, 1, (5,), np.float64),
        "rewards": np.zeros(7, np.float32),
        "extras": {},
    }
    write(tmp_path / "a", [episode(0)], format)
    write(tmp_path / "b", [episode(1, **changed)], format)
    with pytest.raises(SchemaError) as caught:
        run_merge(tmp_path, "a", "b")
    first, *lines, advice = str(caught.value).splitlines()
    assert (first, len(lines)) == ("The datasets differ:", 4)
    assert advice.startswith("Import them again with the same environment or spaces")
    assert [line.split(" is ")[0].strip() for line in lines] == [
        "column 'action_logp'",
        "column 'obs'",
        "column 'rewards'",
        "observation space",
    ]
    assert f"column 'rewards' is float64 in {tmp_path}/a and float32 in {tmp_path}/b" in str(caught.value)
    assert f"column 'obs' is float32[4] in {tmp_path}/a and float64[5] in {tmp_path}/b" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_formats_have_to_be_the_same(tmp_path: Path) -> None:
    write(tmp_path / "a", [episode(0)], "table")
    write(tmp_path / "b", [episode(1)], "episodes")
    with pytest.raises(SchemaError, match=f"differ:\n  format is table in {tmp_path}/a and episodes in {tmp_path}/b"):
        run_merge(tmp_path, "a", "b")
    assert not (tmp_path / "out").exists()


def test_episodes_without_a_step_have_types_too(tmp_path: Path) -> None:
    write(tmp_path / "a", [episode(0, 0, terminated=False), episode(2)])
    write(tmp_path / "b", [episode(1)])
    assert len(kept(run_merge(tmp_path, "a", "b"))) == 3


def test_environments_may_differ(tmp_path: Path) -> None:
    """It is then not known of the merged one."""
    write(tmp_path / "a", [episode(0)], environment="A-v0")
    write(tmp_path / "b", [episode(1)], environment="B-v0")
    run_merge(tmp_path, "a", "b")
    assert open_dataset(str(tmp_path / "out")).manifest.environment is None


def test_into_one_of_them(tmp_path: Path) -> None:
    write(tmp_path / "a", [episode(0)])
    write(tmp_path / "b", [episode(1)])
    result = merge(MergeConfig(), datasets=[str(tmp_path / "a"), str(tmp_path / "b")], output=str(tmp_path / "a"))
    assert kept(result) == [episode(0), episode(1)]
    assert versions(str(tmp_path / "a")) == [1, 2]


def test_nothing_to_merge(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no datasets to merge"):
        run_merge(tmp_path)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_the_times_of_an_import_by_time_are_left_out_beside_others(tmp_path: Path, names: str, format: Format) -> None:
    rows = without([row for i in range(3) for row in steps(f"a{i}", 4)], "new_obs")
    write_rows(tmp_path / "a.parquet", [row | {"t": float(row["t"])} for row in rows])
    write_rows(tmp_path / "b.parquet", [row | {"eps_id": f"b{row['eps_id']}"} for row in rows])
    timed, plain = (
        run_import(
            tmp_path / f"{name}.parquet",
            tmp_path / name,
            format=format,
            episodes={"last_new_obs": "repeat", "order": order},
        )[1]
        for name, order in (("a", "time"), ("b", "t"))
    )
    assert all("time" in e.extras for e in timed) and not any("time" in e.extras for e in plain)
    result = run_merge(tmp_path, *names)
    bare = [replace(e, extras={n: x for n, x in e.extras.items() if n != "time"}) for e in timed]
    assert kept(result) == (bare + plain if names == "ab" else plain + bare)
    assert result.without_time == 3
    assert result.after.columns is None or "time" not in result.after.columns
