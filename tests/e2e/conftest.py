"""Everything that a run on a schedule needs, as real processes of the tests' own: server, pool, deployments and worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.orchestra import Orchestra, checkout


@pytest.fixture(scope="session")
def orchestra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchestra]:
    """A Prefect server on a free port with the pool `offline`, everything of prefect.yaml deployed, and a worker."""
    place = tmp_path_factory.mktemp("orchestra")
    with Orchestra.started(home=place / "prefect", root=checkout(place / "checkout")) as started:
        yield started


@pytest.fixture
def fresh_root(tmp_path: Path) -> str:
    """A folder for what one run makes."""
    return str(tmp_path / "runs")
