"""Settings that hold the pipeline together: where Prefect and Ray must not phone home, and versions that must not slip."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from prefect.settings import Settings
from pydantic import BaseModel

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.slow
def test_prefect_sees_the_settings_of_pyproject_and_does_not_phone_home() -> None:
    """In a fresh process, because this one's were set by the tests. What a server answers is asked in tests/e2e."""
    code = """
from prefect._internal.analytics.service import AnalyticsService
from prefect.server.services.telemetry import get_current_settings
from prefect.settings import get_current_settings as s
s = s()
print(s.server.analytics_enabled, s.server.ui.show_promotional_content, s.logging.to_api.when_missing_flow,
    s.server.ephemeral.startup_timeout_seconds, s.logging.extra_loggers, s.logging.to_api.batch_interval,
    s.client.retry_jitter_factor, AnalyticsService()._check_server_analytics(),
    get_current_settings().server.analytics_enabled)
"""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT_") and key != "DO_NOT_TRACK"}
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False", "ignore", "120", "['offline_core']", "5.0", "1.0", "False", "False"]


def test_every_setting_of_pyproject_is_one_that_prefect_knows() -> None:
    """It takes others too, and does nothing with them."""

    def unknown(values: dict[str, object], model: type[BaseModel], place: str) -> list[str]:
        found = []
        for name, value in values.items():
            field = model.model_fields.get(name)
            if field is None:
                found.append(f"{place}{name}")
            elif isinstance(value, dict) and isinstance(field.annotation, type):
                found += unknown(value, field.annotation, f"{place}{name}.")
        return found

    assert unknown(PYPROJECT["tool"]["prefect"], Settings, "") == []


@pytest.mark.parametrize(
    ("name", "first_that_breaks", "how"),
    [
        ("sqlalchemy", "2.1", "schedules never fire, and the UI does not say so"),
        ("fastapi", "0.151", "flows die at import"),
        ("prefect", "3.9", "nobody has tried"),
    ],
)
def test_versions_that_break_prefect_are_neither_allowed_nor_installed(name: str, first_that_breaks: str, how: str) -> None:
    (required,) = (each for each in map(Requirement, PYPROJECT["project"]["dependencies"]) if each.name == name)
    assert not required.specifier.contains(first_that_breaks), how
    assert required.specifier.contains(importlib.metadata.version(name)), how
    assert Version(importlib.metadata.version(name)) < Version(first_that_breaks), how
