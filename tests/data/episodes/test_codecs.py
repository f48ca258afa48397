"""Both storage formats hold the same episodes, and are asked in the same way."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.episodes.codecs import CODECS, Codec, codec_of
from offline_core.data.episodes.index import content_of
from offline_core.errors import ConfigError, SchemaError
from tests.cases import examples
from tests.data.episodes.strategies import counting, episode_lists

EPISODES = episode_lists(count=st.integers(1, 4), steps=st.integers(1, 4), lookback=st.just(0))
NAMES = [columns.OBS, columns.ACTIONS, columns.REWARDS]


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> Codec:
    return CODECS[request.param]


@settings(max_examples=examples(25))
@given(EPISODES)
def test_what_is_encoded_comes_back(some: list[Episode]) -> None:
    batches = []
    for codec in CODECS.values():
        rows = codec.encode(some)
        assert codec_of(rows.schema) is codec
        assert codec.episodes(rows) == some
        assert codec.episodes(rows, np.arange(len(some)) % 2 == 1) == some[1::2]
        assert np.diff([*codec.starts(rows), rows.num_rows]).tolist() == codec.rows_of(np.array(list(map(len, some)))).tolist()
        batches.append(codec.batch(rows, NAMES, has_last=True))
    assert all(nested.equal(batches[0].of_steps(name), batches[1].of_steps(name)) for name in NAMES)
    assert batches[0].lengths.tolist() == batches[1].lengths.tolist() == list(map(len, some))


def test_rows_are_read_as_they_are_stored(codec: Codec) -> None:
    some = [counting(4, eps_id="a"), counting(2, eps_id="b")]
    rows = codec.encode(some)
    half = rows.num_rows // 2
    found = list(codec.as_stored([("one", rows.slice(0, half)), ("two", rows.slice(half))]))
    assert [content for _, contents in found for content in contents] == [content_of(each) for each in some]
    assert sum(len(batch) for batch, _ in found) == 6


def test_episodes_share_row_groups_as_they_are_told(codec: Codec) -> None:
    some = [counting(steps, eps_id=str(steps)) for steps in (3, 1, 2)]
    asked: list[list[int]] = []

    def share(rows: np.ndarray, sizes: np.ndarray, names: np.ndarray) -> list[tuple[int, int]]:
        assert len(sizes) == len(names) == 3 and (sizes > 0).all()
        asked.append(rows.tolist())
        return [(0, 2), (2, 3)]

    whole = codec.encode(some)
    lengths = np.array([3, 1, 2])
    summary = {columns.LENGTH: lengths, columns.EPS_ID: np.array(["3", "1", "2"], object)}
    for groups in (codec.encoded(some, share), codec.shared(whole, summary, share)):
        found = list(groups)
        assert [(start, stop) for _, start, stop in found] == [(0, 2), (2, 3)]
        assert pa.concat_tables([rows for rows, _, _ in found]).equals(whole)
    assert asked == [codec.rows_of(lengths).tolist()] * 2


def test_columns_are_left_out_where_they_are_stored_apart() -> None:
    schema = CODECS["table"].encode([counting(2)]).schema
    with pytest.raises(ConfigError, match="table format only"):
        CODECS["episodes"].projection(["obs"], schema, "runs/data")
    with pytest.raises(SchemaError, match=r"runs/data has no column depth; it has eps_id"):
        CODECS["table"].projection(["depth"], schema, "runs/data")
    assert {"obs", "eps_id"} <= {*CODECS["table"].projection(["obs"], schema, "runs/data")}
