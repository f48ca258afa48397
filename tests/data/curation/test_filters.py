"""Filters of the user's own: exactly what they keep, read once, and their errors named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.plan import plan_pruning
from offline_core.data.curation.prune import PruningResult
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.episodes import Episode, episode_codec
from offline_core.data.episodes.codecs import Format
from offline_core.errors import ConfigError, DataError, EmptyDatasetError, OfflineError, SchemaError
from tests.data.curation.test_prune import run_prune
from tests.data.datasets.factories import FORMATS, episode, write_dataset

RETURNS = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0]


def ten() -> list[Episode]:
    return [episode(i, 4, rewards=np.array([value, 0.0, 0.0, 0.0])) for i, value in enumerate(RETURNS)]


def at_least(one: Episode, *, value: float = 2.0) -> np.bool:
    return one.rewards.max() >= value


class Even:
    """Keeps every second one of those it sees."""

    def __init__(self, *, first: bool = True) -> None:
        self.keep = not first

    def __call__(self, one: Episode) -> bool:
        self.keep = not self.keep
        return self.keep


class Odd:
    """Does as it is told with episode 4, and keeps the others."""

    def __init__(self, *, gives: Any = None, raises: str | None = None) -> None:
        self.gives, self.raises = gives, raises

    def __call__(self, one: Episode) -> Any:
        if one.eps_id != "episode-0004":
            return True
        if self.raises == "ours":
            raise SchemaError("Not of this kind.")
        if self.raises:
            raise IndexError(self.raises)
        return self.gives


class NotCalled:
    """Has no __call__."""


def own(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"path": f"{__name__}:{name}", "arguments": arguments}


def kept(result: PruningResult) -> list[int]:
    found = open_dataset(result.dataset.uri, result.dataset.version).episodes()
    return [int(one.eps_id.removeprefix("episode-")) for one in found]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("config", "numbers", "dropped"),
    [
        ({"filters": [own("at_least")]}, [0, 2, 4, 5, 6, 7, 8, 9], [2]),
        ({"filters": [own("at_least", value=5)]}, [4, 5, 7, 8], [6]),
        ({"filters": [own("Even")]}, [0, 2, 4, 6, 8], [5]),
        ({"filters": [own("at_least"), own("Even")]}, [0, 4, 6, 8], [2, 4]),
        ({"filters": [own("Even"), own("at_least", value=3)]}, [0, 2, 4, 8], [5, 1]),
        ({"where": "return > 1", "filters": [own("Even", first=False)]}, [2, 5, 7, 9], [2, 4]),
        ({"filters": [own("Even")], "keep_top_fraction": 0.4}, [4, 8], [5, 3]),
    ],
)
def test_filters_see_what_the_rules_before_have_left(
    tmp_path: Path, format: Format, config: dict[str, Any], numbers: Sequence[int], dropped: Sequence[int]
) -> None:
    some = ten()
    write_dataset(tmp_path / "in", some, format, batch=3)
    result = run_prune(tmp_path, **config)
    assert kept(result) == numbers
    assert list(result.dropped.values()) == dropped
    assert set(result.dropped) - {"where", "keep_top_fraction"} == {each["path"] for each in config["filters"]}
    assert result.before.episodes == result.after.episodes + result.dropped_episodes
    assert result.before.steps == result.after.steps + result.dropped_steps


def test_a_filter_twice_is_reported_together(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", ten())
    result = run_prune(tmp_path, filters=[own("at_least", value=2), own("at_least", value=5)])
    assert result.dropped == {f"{__name__}:at_least": 6}
    assert kept(result) == [4, 5, 7, 8]


def test_steps_are_chosen_of_what_filters_keep(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", ten(), batch=3)
    result = run_prune(tmp_path, filters=[own("at_least", value=5)], where_steps="t < 2 and not (max(rewards) = 9)")
    assert result.dropped == {f"{__name__}:at_least": 6, "where_steps": 1}
    assert kept(result) == [4, 7, 8] and result.after.steps == 6


def test_only_what_is_left_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path / "in", ten(), batch=3)
    decoded = []
    decode = episode_codec.decode
    monkeypatch.setattr(episode_codec, "decode", lambda item: decoded.append(one := decode(item)) or one)
    run_prune(tmp_path, where="return in (4, 9)", filters=[own("at_least"), own("at_least")])
    assert [one.eps_id for one in decoded] == ["episode-0002", "episode-0005"]


@pytest.mark.parametrize(
    ("filter", "error", "message"),
    [
        (
            own("Odd", gives=1),
            ConfigError,
            r"filter .*:Odd gives 1 for episode episode-0004, and not True \(keep it\) or False",
        ),
        (own("Odd"), ConfigError, "gives None for episode episode-0004"),
        (
            own("Odd", raises="deep"),
            DataError,
            r"The filter .*:Odd failed .*0004: IndexError\('deep'\) \(.*test_filters.py, line \d+\)\. Fix your function",
        ),
        (own("Odd", raises="ours"), SchemaError, "^Not of this kind.$"),
        (own("Odd", wrong=1), ConfigError, "The filter .*:Odd cannot be made with wrong"),
        (own("Missing"), ConfigError, "The filter '.*:Missing' cannot be imported"),
        (own("NotCalled"), ConfigError, "cannot be called with an episode"),
        (own("at_least", values=1), ConfigError, "The filter .*:at_least cannot be made with"),
    ],
)
def test_errors_name_the_filter(tmp_path: Path, filter: dict[str, Any], error: type[OfflineError], message: str) -> None:
    write_dataset(tmp_path / "in", ten())
    with pytest.raises(error, match=message):
        run_prune(tmp_path, filters=[filter])
    assert not (tmp_path / "out" / "_versions").exists()


def test_when_nothing_is_left_the_filters_are_named(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", ten())
    with pytest.raises(EmptyDatasetError, match=f"{__name__}:at_least"):
        run_prune(tmp_path, filters=[own("at_least", value=100)])


def test_other_arguments_are_another_pruning_and_the_same_is_found(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", ten())
    first = run_prune(tmp_path, filters=[own("at_least", value=5)])
    assert run_prune(tmp_path, filters=[own("at_least", value=5)]) == first.model_copy(update={"reused": True})
    assert run_prune(tmp_path, filters=[own("at_least", value=6)]).dataset.version == 2


def test_a_pruning_without_filters_is_the_operation_it_was() -> None:
    assert "filters" not in Operation.of("prune", PruningConfig()).config


def test_a_plan_says_that_it_did_not_ask_the_filters(tmp_path: Path) -> None:
    write_dataset(tmp_path / "in", ten())
    plan = plan_pruning(PruningConfig(where="return > 1", filters=[own("Odd", raises="deep")]), dataset=str(tmp_path / "in"))
    assert (plan.episodes, plan.unplanned) == (8, [f"{__name__}:Odd"])
