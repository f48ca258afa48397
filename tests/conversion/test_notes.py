"""Why nothing came of an import."""

from __future__ import annotations

from pathlib import Path

import pytest

from offline_core.errors import EmptyDatasetError
from tests.conversion.factories import ROWS, run_import, scattered, without


@pytest.mark.parametrize("names", [(), ("terminateds", "truncateds")])
def test_no_end_at_all_is_why_all_are_dropped(tmp_path: Path, names: tuple[str, ...]) -> None:
    """There are no flags, or none is set."""
    rows = without([row | {"terminateds": False, "truncateds": False} for row in ROWS], *names)
    source = scattered(tmp_path / "in", rows, 1)
    with pytest.raises(
        EmptyDatasetError, match=r"no step ends an episode.*Map the column of ends to terminateds or truncateds"
    ):
        run_import(source, tmp_path / "out", episodes={"incomplete": "drop"})


def test_a_quarantine_of_all_rows_says_why(tmp_path: Path) -> None:
    source = scattered(tmp_path / "in", [row | {"rewards": "much"} for row in ROWS], 1)
    with pytest.raises(
        EmptyDatasetError, match=r"\(21 of 21\) has this reason: .*'rewards'.*first is .*0\.parquet, row 0.*_quarantine"
    ):
        run_import(source, tmp_path / "out", unreadable="quarantine")
