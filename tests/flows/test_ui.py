"""Which UI the addresses that runs print are of, against a server of the test's own; the real one is asked in tests/e2e."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, get_current_settings, temporary_settings

from flows.ui import preferred_ui
from tests.e2e.orchestra import free_port


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, Any]]:
    """What a server answers by path; its address is at "url"."""
    bodies: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = bodies.get(self.path)
            self.send_response(404 if body is None else 200)
            self.end_headers()
            self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        bodies["url"] = f"http://127.0.0.1:{server.server_port}"
        yield bodies
        server.shutdown()


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        ({"default_ui": "v2"}, "/v2"),
        ({"default_ui": "v1"}, None),
        ({"api_url": "older than the second UI"}, None),
        (b"<html>no JSON</html>", None),
        (None, None),
    ],
    ids=["v2", "v1", "older server", "other server", "no UI"],
)
def test_it_is_the_one_that_the_server_prefers(answers: dict[str, Any], answer: Any, path: str | None) -> None:
    answers["/ui-settings"] = answer
    with temporary_settings({PREFECT_API_URL: f"{answers['url']}/api"}, restore_defaults={PREFECT_UI_URL}):
        assert preferred_ui(get_current_settings()) == (path and answers["url"] + path)


def test_what_is_set_stays_and_no_server_is_no_error(answers: dict[str, Any]) -> None:
    answers["/ui-settings"] = {"default_ui": "v2"}
    with temporary_settings({PREFECT_API_URL: f"{answers['url']}/api", PREFECT_UI_URL: "https://ui.example"}):
        assert preferred_ui(get_current_settings()) is None
    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{free_port()}/api"}):
        assert preferred_ui(get_current_settings()) is None
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert preferred_ui(get_current_settings()) is None
