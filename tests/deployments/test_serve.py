"""What `python -m deployments.serve` says once it serves."""

from __future__ import annotations

from deployments.serve import welcome


def test_it_says_where_the_forms_are_and_what_to_press() -> None:
    said = welcome(["train/train", "train/train-short"], "http://127.0.0.1:4200/v2")
    assert said.splitlines() == [
        "Serving train/train, train/train-short.",
        "Their forms: http://127.0.0.1:4200/v2/deployments. Choose one, press Run, then Custom run.",
        "Stop with Ctrl-C.",
    ]


def test_a_server_without_a_ui_has_no_address_of_forms() -> None:
    assert welcome(["train/train"], None) == "Serving train/train.\nStop with Ctrl-C.\n"
