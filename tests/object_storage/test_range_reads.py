"""Bytes and requests: what is not asked for is not fetched, and what is asked for does not take a request for each bit."""

from __future__ import annotations

import numpy as np
import pytest

from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.datasets import row_group as row_groups_module
from offline_core.data.datasets import writer as writer_module
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.row_group import prefetch_tables
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.codecs import Format
from offline_core.data.store.location import Location
from tests.cases import slow_but
from tests.data.datasets.factories import episode, write_dataset
from tests.object_storage.faults import Proxy
from tests.waiting import wait_until

GROUPS = 4


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few episodes each, as they are when episodes are long."""
    monkeypatch.setattr(writer_module, "ROW_GROUP_BYTES", 2**20)


def fat(number: int) -> Episode:
    """A megabyte of observations that no codec makes smaller, each in a row group of its own."""
    noise = np.random.default_rng(number).standard_normal((201, 1300)).astype(np.float32)
    return episode(number, 200, observations=noise, observation_space=None)


def stored(uri: str, format: Format) -> Dataset:
    dataset = write_dataset(uri, [fat(number) for number in range(GROUPS)], format, batch=1)
    assert len(list(dataset.row_groups())) == GROUPS and len(dataset.manifest.files) == 1
    return dataset


def fetched(proxied: Proxy) -> tuple[float, int]:
    """(bytes of data files, requests for them) since the last call."""
    found = proxied.gets(".parquet")
    proxied.seen.clear()
    return sum(each.received_bytes for each in found), len(found)


def test_two_columns_of_a_table_are_a_small_part_of_it(bucket: str, proxied: Proxy) -> None:
    dataset = stored(f"{bucket}/runs/x", "table")
    proxied.seen.clear()
    found = list(dataset.tables([columns.REWARDS, columns.EPS_ID]))
    size, requests = fetched(proxied)
    assert sum(table.num_rows for table in found) == GROUPS * 200
    assert size < dataset.ref.bytes / 50, f"{size:,} of {dataset.ref.bytes:,} bytes"
    assert requests <= 2 + 2 * GROUPS, "the footer, and columns that lie apart"
    list(dataset.tables())
    size, requests = fetched(proxied)
    assert dataset.ref.bytes * 0.95 < size < dataset.ref.bytes * 1.1
    assert requests <= 2 + GROUPS, "columns that lie side by side come together"


@pytest.mark.parametrize("format", slow_but(["episodes", "table"], "episodes"))
def test_looking_over_episodes_does_not_fetch_them(bucket: str, proxied: Proxy, format: Format) -> None:
    dataset = stored(f"{bucket}/runs/x", format)
    proxied.seen.clear()
    assert len(dataset.index()) == GROUPS
    size, requests = fetched(proxied)
    assert size < dataset.ref.bytes / 50, f"{size:,} of {dataset.ref.bytes:,} bytes"
    assert requests <= 2 + 4 * GROUPS


def test_pruning_fetches_what_it_keeps(bucket: str, proxied: Proxy) -> None:
    dataset = stored(f"{bucket}/raw", "episodes")
    proxied.seen.clear()
    result = prune(PruningConfig(keep_top_fraction=0.25), dataset=f"{bucket}/raw", output=f"{bucket}/pruned")
    assert result.dataset.episodes == GROUPS // 4
    size, _ = fetched(proxied)
    assert size < dataset.ref.bytes * 0.35, f"{size:,} of {dataset.ref.bytes:,} bytes"


@pytest.mark.slow
def test_a_stream_begins_before_all_is_fetched(bucket: str, proxied: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups_module, "PREFETCH_BYTES", 2**20)
    dataset = stored(f"{bucket}/runs/x", "table")
    names = [columns.OBS, columns.ACTIONS]
    found = prefetch_tables(list(dataset.row_groups(names)), names)
    proxied.seen.clear()
    next(found)
    assert fetched(proxied)[0] < dataset.ref.bytes / 2
    assert sum(table.num_rows for table in found) == (GROUPS - 1) * 200


def test_a_file_is_read_in_one_request(bucket: str, proxied: Proxy) -> None:
    data = np.random.default_rng(0).bytes(3 * 2**20)
    file = Location.of(f"{bucket}/runs/policy.safetensors")
    file.write(data)
    proxied.seen.clear()
    assert file.read() == data
    wait_until(lambda: any(each.request.method == "GET" for each in proxied.seen), what="the request to be noted")
    assert [each.request.method for each in proxied.seen].count("GET") == 1
