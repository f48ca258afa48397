"""A dataset at hand: episodes by number, drawn steps, and what is read for them."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import offline_core as offline
from offline_core.data.datasets import random_access, row_group
from offline_core.data.episodes import Episode, encode, nested
from offline_core.data.episodes.codecs import Format
from offline_core.errors import ConfigError, CorruptFileError, SchemaError
from tests.data.datasets.factories import FORMATS, cut_in_half, episode, write_dataset, write_items

EPISODES = [episode(i, steps=3 + i % 4) for i in range(12)]


def opened(folder: Path, format: Format = "episodes", episodes: list[Episode] = EPISODES) -> offline.Dataset:
    """In several files, of several row groups each where an episode is a row."""
    write_dataset(folder, episodes, format, batch=2, max_rows_per_file=5 if format == "episodes" else 20)
    return offline.open_dataset(folder)


@pytest.mark.parametrize("format", FORMATS)
def test_episodes_by_number_are_those_of_a_pass(tmp_path: Path, format: Format) -> None:
    data = opened(tmp_path, format)
    assert len(data) == 12 and len(data.manifest.files) > 1
    assert [data[number] for number in range(12)] == EPISODES == list(data)
    assert [data[number] for number in range(-12, 0)] == EPISODES
    assert data[np.int64(3)] == EPISODES[3]
    assert data[3].observation_space == data.observation_space


@pytest.mark.parametrize("format", FORMATS)
def test_a_slice_is_a_view_that_reads_nothing_itself(tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    data = opened(tmp_path, format)
    monkeypatch.setattr(random_access.RandomAccess, "episode", lambda self, number: number)
    some = data[2:-2:3]
    assert len(some) == 3 and list(some) == [2, 5, 8] and list(some[::-1]) == [8, 5, 2]
    assert some[-1] == 8 and list(data[20:]) == []
    assert repr(some) == f"<3 episodes of {tmp_path}, read one by one when they are asked for>"


@pytest.mark.parametrize("index", [12, -13])
def test_an_episode_beyond_the_last_is_named_with_how_many_there_are(tmp_path: Path, index: int) -> None:
    data = opened(tmp_path)
    with pytest.raises(IndexError, match=rf"{tmp_path} has no episode {index}. It has 12: 0 to 11, or -12 to -1."):
        data[index]
    with pytest.raises(IndexError, match=r"has no episode 0\. It has none\."):
        data[5:5][0]


def test_an_episode_is_had_by_its_id(tmp_path: Path) -> None:
    data = opened(tmp_path)
    assert data[data[7].eps_id].eps_id == data[7].eps_id
    with pytest.raises(KeyError, match=rf"has no episode '{data[7].eps_id}x'; did you mean '{data[7].eps_id}'\?"):
        data[f"{data[7].eps_id}x"]


@pytest.mark.parametrize("format", FORMATS)
def test_one_episode_reads_one_row_group_and_none_the_second_time(
    tmp_path: Path, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, reads = opened(tmp_path, format), Counter[int]()
    read = row_group._read

    def counted(groups, names):  # type: ignore[no-untyped-def]
        if names is None:
            reads.update(group.number_in_dataset for group in groups)
        return read(groups, names)

    monkeypatch.setattr(row_group, "_read", counted)
    assert data[4] == EPISODES[4]
    assert sum(reads.values()) == 1
    assert data[4] == EPISODES[4] and sum(reads.values()) == 1
    data.sample(50, seed=1)
    before = sum(reads.values())
    data.sample(50, seed=1)
    assert sum(reads.values()) == before <= 2 * len(list(data.row_groups()))


@pytest.mark.parametrize("format", FORMATS)
def test_drawn_steps_are_steps_of_the_dataset_each_as_likely_as_any_other(tmp_path: Path, format: Format) -> None:
    data = opened(tmp_path, format)
    size = 20_000
    batch = data.sample(size, seed=3, columns=["eps_id", "t", "obs", "new_obs", "actions", "rewards", "action_logp"])
    by_id = {each.eps_id: each for each in EPISODES}
    counts = Counter(zip(batch["eps_id"].tolist(), batch["t"].tolist(), strict=True))
    steps = sum(map(len, EPISODES))
    assert len(counts) == steps and sum(counts.values()) == size
    mean = size / steps
    assert max(abs(count - mean) for count in counts.values()) < 5 * mean**0.5  # five deviations of a Poisson number
    for i in range(0, size, 997):
        one, t = by_id[batch["eps_id"][i]], batch["t"][i]
        assert np.array_equal(batch["obs"][i], one.observations[t])
        assert np.array_equal(batch["new_obs"][i], one.observations[t + 1])
        assert (batch["actions"][i], batch["rewards"][i]) == (one.actions[t], one.rewards[t])
        assert batch["action_logp"][i] == one.extras["action_logp"][t]


def test_a_sample_has_the_columns_of_a_step_and_follows_its_seed(tmp_path: Path) -> None:
    data = opened(tmp_path)
    first, again, other = data.sample(32, seed=0), data.sample(32, seed=0), data.sample(32, seed=1)
    assert list(first) == ["obs", "actions", "rewards", "new_obs", "terminateds", "truncateds"]
    assert {name: column.shape for name, column in first.items()} == {
        **dict.fromkeys(["obs", "new_obs"], (32, 4)),
        **dict.fromkeys(["actions", "rewards", "terminateds", "truncateds"], (32,)),
    }
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["obs"], other["obs"])
    rng = np.random.default_rng(0)
    assert np.array_equal(data.sample(32, seed=rng)["obs"], first["obs"])
    assert not np.array_equal(data.sample(32, seed=rng)["obs"], first["obs"])


@pytest.mark.parametrize("format", FORMATS)
def test_observations_of_a_dict_are_drawn_as_a_dict(tmp_path: Path, format: Format) -> None:
    space = spaces.Dict({"a": spaces.Box(-9, 9, (2,), np.float32), "b": spaces.Discrete(9)})

    def composite(number: int) -> Episode:
        rng = np.random.default_rng(number)
        observations = {"a": rng.random((6, 2)).astype(np.float32), "b": rng.integers(0, 9, 6)}
        return episode(number, steps=5, observations=observations, observation_space=space, extras={})

    data = opened(tmp_path, format, [composite(number) for number in range(4)])
    batch = data.sample(16, seed=0)
    assert batch["obs"]["a"].shape == (16, 2) and batch["new_obs"]["b"].shape == (16,)
    [tensors] = data.to_torch(batch_size=20, columns=["obs", "new_obs"])
    assert tensors["obs"]["a"].shape == (20, 2) and tensors["new_obs"]["b"].shape == (20,)


def test_an_unknown_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no column logp; it has eps_id, .*, action_logp\."):
        opened(tmp_path).sample(3, columns=["logp"])


def test_files_that_were_not_imported_say_how_to_import_them(tmp_path: Path) -> None:
    write_items(tmp_path / "part.parquet", [b"x"])
    data = offline.open_dataset(tmp_path)
    for ask in (
        len,
        lambda data: data[0],
        lambda data: data.sample(1),
        lambda data: data.to_torch(),
        lambda data: data.describe(),
    ):
        with pytest.raises(SchemaError, match=r"is not a dataset yet\. Import it first"):
            ask(data)


def test_files_that_were_not_imported_are_listed_although_their_number_is_not_known(tmp_path: Path) -> None:
    write_items(tmp_path / "part.parquet", [encode(each) for each in EPISODES])
    assert list(offline.open_dataset(tmp_path)) == EPISODES


def test_damage_names_the_file(tmp_path: Path) -> None:
    data = opened(tmp_path)
    cut_in_half(data.paths[0])
    with pytest.raises(CorruptFileError, match=re.escape(data.paths[0])):
        data[0]


def test_a_dataset_that_was_looked_into_can_be_pickled(tmp_path: Path) -> None:
    data = opened(tmp_path)
    assert data[3] == pickle.loads(pickle.dumps(data))[3]


@pytest.mark.parametrize("format", FORMATS)
def test_torch_batches_have_each_step_once_an_epoch_in_an_order_of_the_seed(tmp_path: Path, format: Format) -> None:
    data = opened(tmp_path, format)
    batches = data.to_torch(batch_size=16, seed=4)
    first, second = list(batches), list(batches)
    steps = sum(map(len, EPISODES))
    assert [len(batch["rewards"]) for batch in first] == [16] * (steps // 16) + [steps % 16]
    rows = [{tuple(row) for batch in epoch for row in batch["obs"].tolist()} for epoch in (first, second)]
    assert rows[0] == rows[1] == {tuple(row) for each in EPISODES for row in each.observations[:-1].tolist()}
    assert first[0]["obs"].tolist() != second[0]["obs"].tolist()
    again = data.to_torch(batch_size=16, seed=4)
    again.epoch = 1
    assert all(
        nested.equal(left[name].numpy(), right[name].numpy())
        for left, right in zip(second, again, strict=True)
        for name in left
    )
    assert next(iter(data.to_torch(batch_size=16, seed=5)))["obs"].tolist() != first[0]["obs"].tolist()


def test_torch_batches_hold_what_follows_each_step(tmp_path: Path) -> None:
    data = opened(tmp_path)
    after = {
        tuple(a): b for each in EPISODES for a, b in zip(each.observations[:-1].tolist(), each.observations[1:], strict=True)
    }
    for batch in data.to_torch(batch_size=7):
        assert set(batch) == {"obs", "actions", "rewards", "new_obs", "terminateds", "truncateds"}
        for obs, new_obs in zip(batch["obs"].tolist(), batch["new_obs"].numpy(), strict=True):
            assert np.array_equal(new_obs, after[tuple(obs)])
    with pytest.raises(ConfigError, match="batch_size is 0; it has to be 1 at least"):
        data.to_torch(batch_size=0)
    with pytest.raises(ConfigError, match="has no column logp; it has eps_id, t, obs,"):
        data.to_torch(columns=["obs", "logp"])
    with pytest.raises(ConfigError, match="eps_id holds text, which no tensor can"):
        data.to_torch(columns=["obs", "eps_id"])


@pytest.mark.parametrize("format", FORMATS)
def test_a_description_has_each_number_of_a_step(tmp_path: Path, format: Format) -> None:
    gap = EPISODES[0].observations.copy()
    gap[1, 2] = np.nan
    data = opened(tmp_path, format, [episode(0, steps=3, observations=gap), *EPISODES[1:]])
    described = data.describe()
    assert (described.episodes, described.steps) == (12, sum(map(len, EPISODES)))
    assert described.returns.mean == pytest.approx(np.mean([each.return_ for each in EPISODES]))
    rows = {row["name"]: row for row in described.features.to_dicts()}
    assert list(rows) == ["action_logp", "actions", "obs[0]", "obs[1]", "obs[2]", "obs[3]", "rewards"]
    obs = np.concatenate([gap[:-1], *(each.observations[:-1] for each in EPISODES[1:])])
    assert rows["obs[2]"] == {
        "name": "obs[2]",
        "shape": "(4,)",
        "dtype": "float32",
        "min": pytest.approx(np.nanmin(obs[:, 2])),
        "mean": pytest.approx(np.nanmean(obs[:, 2])),
        "max": pytest.approx(np.nanmax(obs[:, 2])),
        "missing": 1,
        "infinite": 0,
    }
    assert rows["actions"]["dtype"] == "int64" and rows["actions"]["shape"] == "()"
    for text in (repr(described), described._repr_html_()):
        assert "obs[3]" in text and "missing" in text and "12 (6 terminated, 6 truncated)" in text
