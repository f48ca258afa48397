"""What is built from a checkout holds what is there, and leaves nothing behind that would get into the next."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[1]
PACKAGES = ("deployments", "flows", "offline_core", "tasks")


def wheel_of(checkout: Path, folder: Path) -> set[str]:
    """The files of a wheel that is built as pip builds it, without fetching anything."""
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=checkout, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    [wheel] = folder.glob("*.whl")
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


@pytest.mark.slow
def test_a_module_that_was_deleted_since_the_last_build_is_not_in_the_wheel(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (ROOT / "pyproject.toml", ROOT / "README.md", *ROOT.glob("setup.*")):
        shutil.copy(path, checkout)
    modules = {str(path.relative_to(checkout)) for path in checkout.glob("*/**/*") if path.is_file() and path.suffix != ".md"}
    assert {"deployments/prefect.yaml", "offline_core/py.typed", "offline_core/__init__.pyi"} < modules
    deleted = checkout / "offline_core" / "deleted.py"
    deleted.touch()
    assert wheel_of(checkout, tmp_path / "first") == {*modules, "offline_core/deleted.py"}
    deleted.unlink()
    assert wheel_of(checkout, tmp_path / "second") == modules
    assert not (checkout / "build").exists()
