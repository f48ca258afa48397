"""What an import asks of an object store: nothing twice, and what is not answered is neither absent nor damaged."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offline_core.data.datasets.dataset import versions
from offline_core.data.episodes import encode
from offline_core.data.importing.report import ImportResult
from offline_core.data.store import object_store
from offline_core.data.store.location import Location
from offline_core.errors import StorageUnavailableError
from tests.cases import slow_but
from tests.data.datasets.factories import episode, write_items
from tests.data.formats.sources.factories import scalar_steps, write_steps
from tests.object_storage.faults import Fault, Plan, Proxy, Request, no_faults, refusal
from tests.object_storage.test_imports import PLAIN, SCALAR, imported_there, sample_batch, upload


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """One refusal is an outage."""
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0.0)


def away(method: str, part: str) -> Plan:
    """Requests that have `part` in their path or their query are not answered."""

    def plan(request: Request) -> Fault | None:
        return refusal(503, "ServiceUnavailable") if request.method == method and part in request.path else None

    return plan


def write_csv(path: Path, number: int) -> None:
    write_steps(path, scalar_steps(eps_id=[f"{number}{name}" for name in "aaabb"]))


def write_packed(path: Path, number: int) -> None:
    path.write_bytes(gzip.compress(sample_batch().replace(b"[1, 1, 1, 2, 2]", f"{[number] * 3 + [number + 10] * 2}".encode())))


KINDS: dict[str, tuple[Callable[[Path, int], object], dict[str, Any], int]] = {
    "csv": (write_csv, SCALAR, 6),
    "json.gz": (write_packed, PLAIN, 6),
    "parquet": (lambda path, number: write_items(path, [encode(episode(number))]), PLAIN, 3),
}
"""(what writes a file; config; episodes in three of them)"""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", slow_but(KINDS, "csv"))
def test_a_file_that_is_away_is_not_quarantined(kind: str, bucket: str, proxied: Proxy, tmp_path: Path) -> None:
    """And the import without it not committed, where it would be found ever after."""
    write, config, episodes = KINDS[kind]
    (tmp_path / "in").mkdir()
    for number in range(3):
        write(tmp_path / "in" / f"{number}.{kind}", number)
    upload(tmp_path / "in", Location.of(f"{bucket}/in"))

    def run() -> ImportResult:
        return imported_there(bucket, f"{bucket}/in", unreadable="quarantine", **config)

    proxied.plan = away("GET", f"/in/1.{kind}")
    with pytest.raises(StorageUnavailableError, match=rf"Cannot read {bucket}/in/1\.{kind} now: "):
        run()
    assert versions(f"{bucket}/imported") == []
    proxied.plan = no_faults
    result = run()
    assert (result.counts.episodes, result.quarantine, result.reused) == (episodes, None, False)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("pattern", slow_but(["in/*/*.csv", "in/**/*.csv", "in/run-*/1.csv"], "in/*/*.csv"))
def test_a_folder_that_is_away_is_not_left_out_of_a_pattern(pattern: str, bucket: str, proxied: Proxy, tmp_path: Path) -> None:
    for number in range(2):
        write_csv(tmp_path / f"in/run-{number}" / "1.csv", number)
    upload(tmp_path / "in", Location.of(f"{bucket}/in"))
    asked = "/in/run-1/1.csv" if pattern == "in/run-*/1.csv" else "prefix=in%2F" if "**" in pattern else "prefix=in%2Frun-1"
    proxied.plan = away("HEAD" if asked.startswith("/") else "GET", asked)
    with pytest.raises(StorageUnavailableError, match=rf"Cannot (list|look at) {bucket}/in"):
        imported_there(bucket, f"{bucket}/{pattern}", **SCALAR)
    proxied.plan = no_faults
    assert imported_there(bucket, f"{bucket}/{pattern}", **SCALAR).counts.episodes == 4


FILES = 10


@pytest.mark.parametrize("path", slow_but(["in", "in/*.csv"], "in/*.csv"))
def test_no_file_is_asked_for_twice(path: str, bucket: str, proxied: Proxy, tmp_path: Path) -> None:
    """But the first, whose first rows say what the columns are. PyArrow looks at a file before it reads it."""
    for number in range(FILES):
        write_csv(tmp_path / "in" / f"{number}.csv", number)
    upload(tmp_path / "in", Location.of(f"{bucket}/in"))
    proxied.seen.clear()
    assert imported_there(bucket, f"{bucket}/{path}", **SCALAR).counts.episodes == 2 * FILES
    asked = Counter((each.request.method, each.request.path.partition("?")[0].rpartition("/")[2]) for each in proxied.seen)
    for number in range(FILES):
        assert [asked[method, f"{number}.csv"] for method in ("HEAD", "GET")] == ([2, 2] if number == 0 else [1, 1])
    listed = [each.request.path for each in proxied.seen if "prefix=in%2F" in each.request.path]
    assert len(listed) == 2, "whether it is a folder, and what is below"
    assert len(proxied.seen) <= 2 * (FILES + 1) + 30
    proxied.seen.clear()
    assert imported_there(bucket, f"{bucket}/{path}", **SCALAR).reused
    assert len(proxied.seen) <= 10, "whatever the number of files"
