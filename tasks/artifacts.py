"""Puts cards where Prefect's UI shows them."""

from __future__ import annotations

from collections.abc import Mapping

from prefect.artifacts import create_markdown_artifact

from offline_core.episodes import columns
from offline_core.reporting.card import Card
from offline_core.reporting.cards import episodes_card
from offline_core.storage.dataset import DatasetRef, open_dataset
from offline_core.storage.episode_index import episode_index


def publish(card: Card, *, key: str) -> None:
    """Leaves `card` with the running task, and in the history of `key` (lower case, digits and dashes)."""
    create_markdown_artifact(card.markdown(), key=key, description=card.title)


def publish_datasets(title: str, datasets: Mapping[str, DatasetRef], *, rows: Mapping[str, object], key: str) -> None:
    """A card with `rows` and, for each dataset by its name in the legend, the histograms of returns and lengths."""
    indices = {name: episode_index(open_dataset(ref.uri, ref.version)) for name, ref in datasets.items()}
    returns, lengths = ({name: index[column] for name, index in indices.items()} for column in (columns.RETURN, columns.LENGTH))
    publish(episodes_card(title, rows=rows, returns=returns, lengths=lengths), key=key)
