"""examples/quickstart.ipynb runs from the first cell to the last."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.waiting import PATIENCE_SECONDS

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def test_it_is_stored_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_it_ends_with_a_good_policy(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=PATIENCE_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    [mean_return] = [found[-1]["text"] for source, found in outputs.items() if "evaluate" in source]
    assert float(mean_return) > 400
    assert any("image/png" in output.get("data", {}) for found in outputs.values() for output in found)
