"""The card of what made or looked at datasets: pictures of their episodes, and where the card belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from offline_core.data.datasets.dataset import DatasetRef, open_dataset
from offline_core.data.episodes import columns
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, command

CARDS = "_cards"
"""Folder of the cards inside a dataset, one a version, named like its manifest."""
MOST_SOURCES = 5
"""Among the facts of a card."""
MANY_EPISODES, FEW_EPISODES = 200, 20
"""Episodes from which on a split by id leaves no side empty by the default share, for 0.9^200 is 7e-10; and those below which
half is held out."""
BOTH = "return, which is the steps per episode"


def dataset_card(
    title: str,
    made: Sequence[DatasetRef],
    drawn: Mapping[str, DatasetRef],
    *,
    warnings: Sequence[str] = (),
    next: str = "",
    **values: Any,
) -> Card:
    """A card of the datasets `made`, with histograms of the episodes of those `drawn`, which are named by a legend.

    Arguments:
        next: what comes next; a check unless given.
        values: other fields of the card.
    """
    return Card(
        title,
        draw=figures.drawn(lambda: _histograms(drawn)),
        about=(made[0].uri, made[0].version),
        places=[f"{ref.uri}/{CARDS}/{ref.version:06d}" for ref in made],
        warnings=[*warnings, *(_older(ref) for ref in made if ref.latest is not None)],
        next=next or command("offline", "check", *reading(made[0])),
        **values,
    )


def numbered(sources: Sequence[object]) -> tuple[dict[str, object], dict[str, object]]:
    """What several sources gave, as facts, and as details where they are too many for those."""
    names = [f"From {number}" for number in range(1, len(sources) + 1)]
    named = [*zip(names, sources, strict=True)]
    return dict(named[:MOST_SOURCES]), dict(named[MOST_SOURCES:])


def reading(ref: DatasetRef) -> list[str]:
    """The words by which a command reads this version."""
    return [ref.uri] if ref.latest is None else [ref.uri, "--version", str(ref.version)]


def splitting(ref: DatasetRef) -> str:
    """The command that splits a dataset so that no side is left empty: by id, of few episodes by lot, of very few in halves."""
    if ref.episodes >= MANY_EPISODES:
        share = ["-s", "by=id"]
    else:
        share = [] if ref.episodes >= FEW_EPISODES else ["-s", "held_out_fraction=0.5"]
    return command("offline", "split", *reading(ref), f"{ref.uri}-split", *share)


def returns_and_lengths(
    returns: Mapping[str, Sequence[float]], lengths: Mapping[str, Sequence[float]]
) -> list[figures.Picture]:
    """Histograms of both, one a group; a single one where they are the same, as in CartPole."""
    if all([*returns[name]] == [*lengths[name]] for name in returns):
        return [partial(figures.histogram, groups=returns, x=BOTH)]
    return [
        partial(figures.histogram, groups=returns, x="return"),
        partial(figures.histogram, groups=lengths, x="steps per episode"),
    ]


def _histograms(drawn: Mapping[str, DatasetRef]) -> list[figures.Picture]:
    indices = {name: open_dataset(ref.uri, ref.version).index() for name, ref in drawn.items()}
    returns, lengths = (
        {name: index[column].to_list() for name, index in indices.items()} for column in (columns.RETURN, columns.LENGTH)
    )
    return returns_and_lengths(returns, lengths)


def _older(ref: DatasetRef) -> str:
    return (
        f"{ref.uri}: version {ref.version} is reused; the latest is version {ref.latest}. "
        f"Give the next command --version {ref.version}, for without it the latest is read."
    )
