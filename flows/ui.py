"""Where runs are seen: Prefect 3.8 prints addresses of its older UI, whichever UI the server is set to show."""

from __future__ import annotations

import os

import httpx
from prefect.context import refresh_global_settings_context
from prefect.settings import Settings, get_current_settings

VARIABLE = "PREFECT_UI_URL"
ANSWER_SECONDS = 2.0


def use_preferred_ui() -> None:
    """Lets this process, and those that it starts, print addresses in the UI that the server prefers."""
    if url := preferred_ui(get_current_settings()):
        os.environ[VARIABLE] = url
        refresh_global_settings_context()


def preferred_ui(settings: Settings) -> str | None:
    """The newer UI's address, to which Prefect adds paths; None if the server prefers the older, or PREFECT_UI_URL is set."""
    if settings.ui_url is None or "ui_url" in settings.model_fields_set:
        return None
    try:
        answer = httpx.get(f"{settings.ui_url}/ui-settings", timeout=ANSWER_SECONDS)
        is_preferred = answer.is_success and answer.json().get("default_ui") == "v2"
    except (httpx.HTTPError, ValueError):
        return None  # no server, which the run itself will say, or another kind of server
    return f"{settings.ui_url}/v2" if is_preferred else None
