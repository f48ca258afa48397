"""`OFFLINE_IMPORTS`: which modules may be imported by name."""

from __future__ import annotations

import pytest

from flows.stages import train_expert
from offline_core.errors import ConfigError
from offline_core.runtime.allowed_imports import VARIABLE, check_import
from offline_core.runtime.user_code import import_object


@pytest.fixture(autouse=True)
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "examples.environment, json,")


@pytest.mark.parametrize("module", ["json", "json.decoder", "examples.environment", "offline_core.learning"])
def test_what_is_listed_and_what_is_below_it_may_be_imported(module: str) -> None:
    check_import(module)


@pytest.mark.parametrize("module", ["jsonx", "examples", "examples.environments", "os", "", "offline_core2", " json"])
def test_all_else_is_refused_before_it_is_imported(module: str) -> None:
    with pytest.raises(ConfigError, match="OFFLINE_IMPORTS allows here: "):
        import_object(f"{module}:loads", "reader")


@pytest.mark.parametrize("text", ["", " ", ","])
def test_unset_or_empty_means_all(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    check_import("os")


@pytest.mark.parametrize(
    "config",
    [
        {"environment": {"id": "antigravity:Corridor-v0"}},
        {"environment": {"id": "examples.environment:Corridor-v0"}, "network": {"module": "antigravity:Net"}},
    ],
)
def test_a_run_is_refused_before_it_starts(config: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="The module 'antigravity'"):
        train_expert.validate_parameters({"config": config})
