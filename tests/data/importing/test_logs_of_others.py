"""Thirty logs as people have them: imported at the first attempt as a careful person would, or refused with the cure.

A folder of `logs_of_others` is one: its files, and in case.yaml

what      what people have, in one sentence
source    the file or files
config    of the import; left out: none
plan      true: the import takes what the plan of it proposes
expect    import (ok, refused, or a list of both), error_has (words, `a|b`: either), episodes, steps, terminated, truncated,
          action_space, reward_sum; obs_first and actions_first_episode of the episode with the least id, or the first where ids
          are made up; notes_have
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import offline_core as offline
from offline_core.data.episodes import nested
from offline_core.errors import OfflineError

FOLDER = Path(__file__).parent / "logs_of_others"


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_a_log_is_imported_at_the_first_attempt_or_refused_with_the_cure(name: str, tmp_path: Path) -> None:
    case = yaml.safe_load((FOLDER / name / "case.yaml").read_text())
    expect, sources = case["expect"], _listed(case["source"])
    paths = [str(FOLDER / name / source) for source in sources]
    allowed = _listed(expect.get("import", "ok"))
    try:
        data = _imported(paths, case, tmp_path)
    except OfflineError as error:
        assert "refused" in allowed, error
        _assert_said(expect.get("error_has", []), str(error))
        return
    assert "ok" in allowed, data
    _assert_said(expect.get("notes_have", []), " ".join(data.result.notes))
    found = dict(_facts(data))
    for key in found.keys() & expect.keys():
        wanted = expect[key]
        if key == "action_space":
            assert found[key] in _listed(wanted)
        else:
            np.testing.assert_allclose(_flat(found[key]), _flat(wanted), rtol=1e-4, atol=1e-5, err_msg=key)


def _imported(paths: list[str], case: dict[str, Any], folder: Path) -> offline.Dataset:
    config = case.get("config") or {}
    if case.get("plan"):
        plan = offline.plan_import(paths, config=config)
        if not plan.is_ready:
            raise OfflineError(str(plan))
        config = plan.config
    return offline.import_data(paths, output=folder / "out", config=config)


def _facts(data: offline.Dataset) -> Iterator[tuple[str, Any]]:
    episodes = list(data.episodes())
    yield "episodes", len(episodes)
    yield "steps", sum(map(len, episodes))
    yield "terminated", sum(episode.terminated for episode in episodes)
    yield "truncated", sum(episode.truncated for episode in episodes)
    yield "action_space", str(data.action_space)
    yield "reward_sum", sum(float(episode.rewards.sum()) for episode in episodes)
    ids = [str(episode.eps_id) for episode in episodes]
    first = episodes[0]
    if all(re.fullmatch(r"-?\d{1,18}", each) for each in ids):
        first = min(episodes, key=lambda each: int(each.eps_id))
    elif not any(re.fullmatch("[0-9a-f]{32}", each) for each in ids):
        first = min(episodes, key=lambda each: str(each.eps_id))
    yield "obs_first", nested.map_leaves(lambda leaf: leaf[0], first.observations)
    yield "actions_first_episode", first.actions


def _flat(value: Any) -> np.ndarray:
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, list | tuple):
        return np.concatenate([_flat(each) for each in value])
    return np.asarray(value, float).reshape(-1)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _assert_said(words: list[str], text: str) -> None:
    for word in words:
        assert any(each.lower() in text.lower() for each in word.split("|")), f"{word} is not in: {text}"
