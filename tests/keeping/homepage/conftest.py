"""What the tests of the served report share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.keeping.homepage.served import write_root


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a bit of everything, which no test changes."""
    root = tmp_path_factory.mktemp("served") / "runs"
    write_root(root)
    return root
