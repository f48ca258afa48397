"""Settings that hold the pipeline together: where Prefect and Ray must not phone home, and versions that must not slip."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parents[2]


def test_prefect_sees_the_settings_of_pyproject() -> None:
    """In a fresh process, because this one's were set by the tests; unknown keys are ignored by Prefect without a word."""
    code = (
        "from prefect.settings import get_current_settings as s; s = s();"
        "print(s.server.analytics_enabled, s.server.ui.show_promotional_content, s.logging.to_api.when_missing_flow,"
        "s.server.ephemeral.startup_timeout_seconds, s.logging.extra_loggers)"
    )
    import os

    env = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_")}
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False", "ignore", "120", "['offline_core']"]


def test_versions_that_break_prefect_without_a_word_are_not_installed() -> None:
    assert Version(importlib.metadata.version("sqlalchemy")) < Version("2.1"), "schedules never fire"
    assert Version(importlib.metadata.version("fastapi")) < Version("0.151"), "flows die at import"
