"""Puts cards where Prefect's UI shows them."""

from __future__ import annotations

from prefect.artifacts import create_markdown_artifact

from offline_core.reporting.card import Card


def publish(card: Card, *, key: str) -> None:
    """Leaves `card` with the running task, and in the history of `key` (lower case, digits and dashes)."""
    create_markdown_artifact(card.markdown(), key=key, description=card.title)
