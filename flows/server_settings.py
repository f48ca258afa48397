"""Which Prefect server is set, read as Prefect 3.8 does and without importing it: that takes longer than many a stage."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offline_core.errors import ConfigError


def api_url() -> str | None:
    """The address of the server's API; None: no server is set."""
    return _setting("api", "url")


def ui_url() -> str | None:
    """Where the server's UI is said to be; Prefect derives it from the address of the API where it is not."""
    return _setting("ui_url")


def _setting(*path: str) -> str | None:
    """A setting by its path in TOML files; None if it is nowhere, or empty in the first place that has it."""
    variable = f"PREFECT_{'_'.join(path)}".upper()
    return next((value for value in _values(variable, path) if value is not None), None) or None


def _values(variable: str, path: tuple[str, ...]) -> Iterator[Any]:
    """Its value in each place where Prefect looks, the first of which counts."""
    yield os.environ.get(variable)
    yield _dotenv().get(variable)
    yield _inside(_prefect_toml(), *path)
    yield _inside(_pyproject(), *path)
    yield _profile().get(variable)


def _profile() -> dict[str, Any]:
    """The settings of the active profile; those that Prefect brings with it name no server."""
    places = (
        os.environ.get("PREFECT_PROFILES_PATH"),
        _dotenv().get("PREFECT_PROFILES_PATH"),
        _prefect_toml().get("profiles_path"),
        _pyproject().get("profiles_path"),
    )
    home = os.environ.get("PREFECT_HOME") or Path("~/.prefect").expanduser()
    profiles = _toml(Path(next(filter(None, places), None) or Path(home, "profiles.toml")))
    profile = os.environ.get("PREFECT_PROFILE") or profiles.get("active")
    return dict(_inside(profiles, "profiles", profile) or {})


def _dotenv() -> dict[str, Any]:
    if not Path(".env").is_file():
        return {}
    from dotenv import dotenv_values

    return {name.upper(): value for name, value in dotenv_values(".env").items()}


def _prefect_toml() -> dict[str, Any]:
    return _toml(Path("prefect.toml"))


def _pyproject() -> dict[str, Any]:
    return dict(_inside(_toml(Path("pyproject.toml")), "tool", "prefect") or {})


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read, in which Prefect may find its server: {error}. Correct or remove it."
        ) from None


def _inside(values: Any, *path: Any) -> Any:
    """What nested tables have at a path; None if there is nothing."""
    for name in path:
        values = values.get(name) if isinstance(values, dict) else None
    return values
