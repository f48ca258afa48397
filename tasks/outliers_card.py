"""The card of a ranking of episodes: the outliers with their reasons, and what the data speaks for."""

from __future__ import annotations

from offline_core.data.store.location import Location
from offline_core.judging.ranking.config import OutlierConfig
from offline_core.judging.ranking.reasons import MOST_DEVIATIONS
from offline_core.judging.ranking.result import OutlierResult
from offline_core.runtime.reporting.card import Headline
from offline_core.runtime.reporting.cards import outliers_card
from tasks.artifacts import Page


def outliers(result: OutlierResult, config: OutlierConfig, *, output: str, **_: object) -> Page:
    """The page of a result."""
    advice, quantiles = result.advice, result.quantiles
    scores = ", ".join(f"{_score(value)} of {100 * float(share):g} %" for share, value in quantiles.items())
    card = outliers_card(
        headline=Headline("Advice", str(advice), "neutral"),
        rows={
            "Dataset": result.dataset,
            "Scores": result.scores,
            "Outliers": f"{result.count:,} of {result.dataset.episodes:,} episodes, from a score of {result.threshold:g} on",
            "Scores up to": scores,
        },
        outliers=[(each.episode, each.eps_id, _score(each.score), each.reason) for each in result.outliers],
        advice=[*advice.sentences, *result.notes],
    )
    return Page(card, (result.dataset.uri, result.dataset.version), [Location.of(output).child("card")])


def _score(score: float) -> str:
    return f"{score:.1f}" if score < MOST_DEVIATIONS else f"over {MOST_DEVIATIONS:,}"
