"""What is derived from an append reads only what is new, and is what a derivation from everything is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.curation.config import PruningConfig, SplitConfig
from offline_core.data.curation.prune import prune
from offline_core.data.curation.split import split
from offline_core.data.datasets import copying as deriving
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import Episode
from offline_core.errors import ConfigError, EmptyDatasetError
from offline_core.policies.recording.mixing import MixtureConfig, mix
from tests.cases import slow_but
from tests.data.importing.factories import Row, run_import, steps, write_rows

DECLARED = {"action_space": {"space": "discrete", "n": 3}, "files": {"max_rows_per_file": 4}}


def held(uri: str | Path) -> list[Episode]:
    return sorted(open_dataset(str(uri)).episodes(), key=lambda e: e.eps_id)


class World:
    """A folder with logs, a dataset to which days are appended, and what is derived from it."""

    def __init__(self, folder: Path, format: str) -> None:
        self.folder = folder
        self.config = {**DECLARED, "format": format}
        self.days = 0

    def day(self, *rows: Row) -> None:
        write_rows(self.folder / f"in/{self.days}.parquet", rows)
        self.days += 1
        run_import(self.folder / "in", self.folder / "data", append=True, **self.config)

    def changed_files(self) -> list[int]:
        """[files that the version before has alone, files that the latest has alone]."""
        now = open_dataset(str(self.folder / "data"))
        before = open_dataset(str(self.folder / "data"), now.manifest.version - 1)
        paths, others = ({file.path for file in each.manifest.files} for each in (before, now))
        return [len(paths - others), len(others - paths)]

    def split(self, output: str = "split", **more: Any) -> Any:
        config = SplitConfig(by="id", held_out_fraction=0.4, **more)
        return split(config, dataset=str(self.folder / "data"), output=str(self.folder / output))

    def prune(self, output: str = "pruned", where: str = "length >= 3", **more: Any) -> Any:
        config = PruningConfig(where=where, **more)
        return prune(config, dataset=str(self.folder / "data"), output=str(self.folder / output))


@pytest.fixture(params=slow_but(["episodes", "table"], "episodes"))
def world(tmp_path: Path, request: pytest.FixtureRequest) -> World:
    made = World(tmp_path, request.param)
    made.day(*(row for i in range(12) for row in steps(f"e{i}", 2 + i % 3)))
    return made


@pytest.fixture
def read_files(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files each derivation from an append read."""
    found: list[int] = []
    original: Callable[..., Any] = deriving.only_files

    def noted(dataset: Any, *, without: Any) -> Any:
        part = original(dataset, without=without)
        found.append(len(part.manifest.files))
        return part

    monkeypatch.setattr(deriving, "only_files", noted)
    return found


def test_a_new_day(world: World, read_files: list[int]) -> None:
    before, pruned = world.split(), world.prune()
    sides = {e.eps_id: side for side in ("train", "held_out") for e in held(world.folder / "split" / side)}
    assert len(sides) == 12 and set(sides.values()) == {"train", "held_out"} and read_files == []
    world.day(*(row for i in range(12, 18) for row in steps(f"e{i}", 2 + i % 3)))
    after, again = world.split(), world.prune()
    assert read_files == world.changed_files() * 3 and read_files[0] == 0  # of each side and of the pruning: no file is gone
    now = {e.eps_id: side for side in ("train", "held_out") for e in held(world.folder / "split" / side)}
    assert now.items() > sides.items() and len(now) == 18
    assert (before.train.version, after.train.version) == (1, 2)
    assert after.before.episodes == after.train.episodes + after.held_out.episodes == 18
    assert again.dropped == {"where": 6} and again.after.episodes == 12 > pruned.after.episodes
    for name in ("split/train", "split/held_out", "pruned"):
        world.split("all/split"), world.prune("all/pruned")
        made, whole = (open_dataset(str(world.folder / place / name)) for place in ("", "all"))
        assert list(made.episodes()) == list(whole.episodes())
        assert made.manifest.statistics.episodes == whole.manifest.statistics.episodes
        assert made.manifest.report == whole.manifest.report
        assert made.manifest.identity == whole.manifest.identity
    assert world.split().reused and world.prune().reused


def test_late_rows(world: World, read_files: list[int]) -> None:
    world.day(*steps("late", 6)[:2])
    world.split(), world.prune()
    world.day(*steps("late", 6)[2:5], *steps("new", 3))  # e0 to e11 lie in other files
    world.split(), world.prune()
    assert read_files == world.changed_files() * 3 and read_files[0] == 1
    world.split("all/split"), world.prune("all/pruned")
    for name in ("split/train", "split/held_out", "pruned"):
        made, whole = (open_dataset(str(world.folder / place / name)).manifest for place in ("", "all"))
        assert held(world.folder / name) == held(world.folder / "all" / name)
        assert (made.statistics.steps, made.statistics.truncated) == (whole.statistics.steps, whole.statistics.truncated)
        for part in ("returns", "lengths"):
            assert getattr(made.statistics, part).model_dump() == pytest.approx(getattr(whole.statistics, part).model_dump())
        assert made.report == whole.report
    [late] = [e for e in held(world.folder / "pruned") if e.eps_id == "late"]
    assert len(late) == 5


def test_all_parts_of_an_id_are_on_one_side(world: World) -> None:
    rows = [row for i in range(30) for row in steps(f"p{i}", 5) if row["t"] != 2]
    world.day(*rows)
    result = world.split()
    sides: dict[str, set[str]] = {}
    for side in ("train", "held_out"):
        for each in held(world.folder / "split" / side):
            sides.setdefault(each.eps_id.partition("@")[0], set()).add(side)
    assert len(sides) == 42 and all(len(side) == 1 for side in sides.values())
    assert result.duplicates == 30 and 0.2 < result.held_out.episodes / 72 < 0.6
    with pytest.raises(EmptyDatasetError, match="all have their hash on one side"):
        split(
            SplitConfig(by="id", held_out_fraction=1e-9), dataset=str(world.folder / "data"), output=str(world.folder / "none")
        )


def test_a_condition_on_all_episodes_reads_them_all(world: World, read_files: list[int]) -> None:
    world.prune(where="return >= avg(return)")
    world.day(*steps("long", 9))
    made = world.prune(where="return >= avg(return)")
    mean = sum(e.return_ for e in held(world.folder / "data")) / 13
    assert made.after.episodes == sum(e.return_ >= mean for e in held(world.folder / "data"))
    assert read_files == []


def test_what_is_new_since_a_version_is_mixed_with_all(world: World) -> None:
    world.day(*steps("n0", 4), *steps("n1", 4), *(row | {"rewards": 9.0} for row in steps("e1", 3)))
    config = PruningConfig(new_since=1)
    new = prune(config, dataset=str(world.folder / "data"), output=str(world.folder / "new"))
    assert [e.eps_id for e in held(world.folder / "new")] == ["e1", "n0", "n1"]
    assert new.dropped == {"new_since": 11} and new.before.episodes == new.after.episodes + 11
    mixture = MixtureConfig(datasets={str(world.folder / "new"): 0.5, str(world.folder / "data"): 0.5}, steps=20)
    mixed = mix(mixture, output=str(world.folder / "mixed"))
    ids = [e.eps_id for e in held(world.folder / "mixed")]
    assert {"e1", "n0", "n1"} < set(ids) and len(ids) == len(set(ids))
    assert mixed.steps[str(world.folder / "new")] == 11
    with pytest.raises(EmptyDatasetError, match="new since version 2"):
        prune(PruningConfig(new_since=2), dataset=str(world.folder / "data"), output=str(world.folder / "none"))
    other = World(world.folder / "other", str(world.config["format"]))
    other.day(*(row | {"rewards": 1.5} for row in steps("n0", 4)))
    with pytest.raises(ConfigError, match="holds episode n0, and so does"):
        sources = {str(world.folder / "new"): 0.5, str(other.folder / "data"): 0.5}
        mix(MixtureConfig(datasets=sources, steps=20), output=str(world.folder / "no"))
