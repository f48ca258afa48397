"""Which algorithm a dataset speaks for, by rules of the literature."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from offline_core.judging.ranking.measures import CONSTANT, Measures
from offline_core.judging.ranking.trainings import BEST_EPISODES, Trained, Training, training_of
from offline_core.runtime.result import Part
from offline_core.runtime.units import count_text

ALIKE = 0.15
"""Spread of the returns below which all episodes are about as good as each other."""
BY_LOT = 0.97
"""Stochasticity above which what acted did so by lot."""
FEW_STEPS, FEW_EPISODES = 5_000, 50
ENOUGH_BEST = 2_000
"""Steps of the episodes near the best that are enough to clone those alone."""
MOST_BEST = 0.5
"""Share of the episodes near the best from which on they are cloned alone, however few they are: most of the log is left."""

KUMAR = "Kumar et al. 2022, arXiv 2204.05618"
SCHWEIGHOFER = "Schweighofer et al. 2022, arXiv 2111.04714"
CHEN = "Chen et al. 2021, arXiv 2106.01345, whose %BC this is"
KOSTRIKOV = "Kostrikov et al. 2022, arXiv 2110.06169"
FUJIMOTO = "Fujimoto & Gu 2021, arXiv 2106.06860"

DataKind = Literal["expert", "random", "mixed", "one_policy"]


class Advice(Part):
    """What to train first, why, and what next."""

    kind: DataKind = Field(description="What the data seems to be.")
    first: Training = Field(description="What to train first.")
    second: Training = Field(description="What to try next.")
    confidence: Literal["low", "medium", "high"]
    because: str
    source: str
    sentences: list[str] = Field(description="The measures in words.")

    def __str__(self) -> str:
        return f"{self.what.removesuffix('.')}: {self.why}"

    @property
    def what(self) -> str:
        """What to train."""
        return f"Train {self.first} first, then {self.second} ({self.confidence} confidence)."

    @property
    def why(self) -> str:
        """What speaks for it, and where that is from."""
        return f"{self.because} ({self.source})."


def advise(measures: Measures, data: Trained, *, target: float | None = None) -> Advice:
    """Say by rules of the literature what to train first; their limits are ours, and only a sweep shows what is best.

    Arguments:
        data: what the commands of the advice train on.
        target: a return known to be good. Without it nothing tells whether episodes that are alike are all good or all bad;
            only random actions are known not to be good.
    """
    kind, actions = data_kind(measures, target), measures.actions.kind
    by_value = {"discrete": "cql", "composite": "iql"}.get(actions, "td3_bc")
    if kind == "expert":
        first, second, source = "bc", "marwil", KUMAR
        because = (
            "the episodes are alike in return, or in what is done in a state, so it can be copied, and little is left to choose"
        )
        confidence = "high" if target is not None or (measures.stochasticity or 1) < 0.5 else "medium"
    elif kind == "random":
        first, second = "iql", "marwil" if actions == "composite" else by_value
        source = f"{KOSTRIKOV}; {FUJIMOTO if second == 'td3_bc' else SCHWEIGHOFER}"
        because = "what acted did so by lot, so copying it is no use, and it tried all actions, so their values can be learned"
        confidence = "medium" if measures.coverage >= 0.2 else "low"
    elif kind == "one_policy":
        first, second, source = "marwil", by_value, f"{KUMAR}; {SCHWEIGHOFER}"
        because = "the returns differ by chance more than by what was done, so the better actions have to be told from luck"
        confidence = "low"
    elif measures.are_single_choices:
        first, second, source = "iql", "marwil", f"{KOSTRIKOV}; {KUMAR}"
        because = (
            "each episode is one choice, and its reward is partly luck: the better choices are those that come to more on "
            "average, and the best episodes are not to be copied"
        )
        confidence = "medium"
    elif measures.near_best >= MOST_BEST:
        first, second, source = "iql", BEST_EPISODES, f"{KUMAR}; {CHEN}"
        because = (
            f"{100 * measures.near_best:.0f} % of the episodes are near the best, and others far from it: the best parts "
            "can be joined, or the best episodes copied alone"
        )
        confidence = "medium"
    elif measures.near_best * measures.steps >= ENOUGH_BEST and measures.near_best >= 0.05:
        first, second, source = "iql", BEST_EPISODES, f"{KUMAR}; {CHEN}"
        because = "some episodes are far better than others: the best parts can be joined, or the best episodes copied alone"
        confidence = "medium"
    else:
        first, second, source = "iql", "marwil", f"{KOSTRIKOV}; {KUMAR}"
        because = "some episodes are far better than others, and those are too few to copy: the best parts have to be joined"
        confidence = "medium"
    if measures.steps < FEW_STEPS or measures.episodes < FEW_EPISODES:
        confidence = "low"
    return Advice(
        kind=kind,
        first=training_of(first, measures, data),
        second=training_of(second, measures, data),
        confidence=confidence,
        because=because,
        source=source,
        sentences=_sentences(measures, target),
    )


def data_kind(measures: Measures, target: float | None = None) -> DataKind:
    """What the data seems to be.

    Returns of single choices that are alike say nothing: of rare rewards, such as clicks, most are 0 whatever is chosen.
    """
    by_lot = measures.stochasticity is not None and measures.stochasticity >= BY_LOT
    if by_lot:
        return "random"
    constant = measures.stochasticity is not None and measures.stochasticity <= CONSTANT
    alike = constant or (not measures.are_single_choices and (measures.spread <= ALIKE or measures.near_best >= 0.75))
    if alike and (target is None or measures.near_best >= 0.5):
        return "expert"
    return "one_policy" if alike else "mixed"


def _sentences(m: Measures, target: float | None) -> list[str]:
    goal = "the best of them" if target is None else f"the target of {target:g}"
    sentences = [
        f"Size: {count_text(m.episodes, 'episode')}, {count_text(m.steps, 'step')}; "
        f"half of the episodes have at least {m.median_length:,.0f}.",
        f"Expertise: {m.expertise:.2f} (1 is {goal}); {100 * m.near_best:.0f} % of the episodes are near it. Returns: "
        f"{m.worst_return:.4g} (lowest twentieth), {m.median_return:.4g} (median), {m.best_return:.4g} (highest twentieth).",
    ]
    if m.stochasticity is not None:
        sentences.append(f"Stochasticity: {m.stochasticity:.2f} (0 always acts alike in a state, 1 by lot).")
    sentences.append(f"Coverage: {m.coverage:.2f} of what points all over the space of states and actions reach.")
    sentences.append(f"Rewards: {100 * m.reward_density:.0f} % of the steps have another one than the most common.")
    if target is None and m.near_best >= 0.75 and not m.are_single_choices:
        sentences.append("All episodes are alike, and whether that is good the data cannot tell: give target_return.")
    if m.steps < FEW_STEPS or m.episodes < FEW_EPISODES:
        sentences.append("That is little: any algorithm may be better by chance. Compare several by a sweep.")
    return sentences
