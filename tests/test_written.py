"""What is written from the stages is fresh, and says what it is meant to."""

from __future__ import annotations

from pathlib import Path

import pytest

from offline_core.runtime.stage import _read
from tests import reference
from tests.written import ROOT, WRITTEN, stages


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_written_is_fresh(path: Path) -> None:
    assert path.read_text() == WRITTEN[path](), "Run `python -m tests.written`, and look at what changed."


def test_the_reference_has_a_fresh_page_for_each_stage_and_no_other() -> None:
    pages = reference.pages(stages())
    assert {path: path.read_text() for path in pages} == pages, "Run `python -m tests.written`, and look at what changed."
    assert {*(reference.FOLDER / "stages").iterdir()} == {path for path in pages if path.parent.name == "stages"}


def test_the_list_knows_what_the_decorators_say() -> None:
    assert {name: each.as_json() for name, each in _read().items()} == {name: each.as_json() for name, each in stages().items()}
