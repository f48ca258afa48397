"""Why a log, or a candidate on it, cannot be judged: sentences that say what is wrong and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
from pydantic import BaseModel

from offline_core.data.datasets.dataset import Dataset, DatasetRef
from offline_core.data.datasets.result_cache import RESULT_FILE, stored_result
from offline_core.data.episodes import columns
from offline_core.data.store.location import Location
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.result import Candidate, Difference, Verdict
from offline_core.judging.estimation import diagnostics
from offline_core.judging.estimation.behaviour import Examined
from offline_core.judging.estimation.contenders import MOST_MISCALIBRATED, Contender
from offline_core.judging.estimation.influence import Tail
from offline_core.policies.lineage import Lineage

MOST_CARRIED = 0.25
"""Share of one episode above which it carries too much, see `Difference.largest_share`."""
HEAVY_TAIL = 0.5
"""Shape of a Pareto distribution that has no variance any more."""
STANDARD_ERRORS, NOTICED_NATS = 4.0, 0.02
"""How far a model's log-probability may exceed the recorded one: so many standard errors, and so many nats."""


def about_today(config: DecisionConfig, reasons: Iterable[str]) -> Iterator[str]:
    """Say that nothing can be held against what runs today."""
    for reason in reasons:
        yield f"Of {config.against}, which runs today, it cannot tell the value: {reason}"


def about_support(effective_episodes: float, config: DecisionConfig, overlap: float) -> Iterator[str]:
    """Say that the log has too little of what a policy does."""
    if overlap < config.min_overlap:
        yield (
            f"the behaviour would plausibly take {100 * overlap:.0f} % of its actions, and "
            f"{100 * config.min_overlap:.0f} % are needed (min_overlap): record with a behaviour that is more like it"
        )
    wanted = config.estimate.min_effective_episodes
    if effective_episodes < wanted:
        yield (
            f"{effective_episodes:.1f} effective episodes are left, and {wanted:g} are needed "
            "(estimate.min_effective_episodes): record more, or with a behaviour that is more like it"
        )


def about_difference(difference: Difference, config: DecisionConfig, overlap: float) -> Iterator[str]:
    """Say why a difference means nothing."""
    yield from about_support(difference.effective_episodes, config, overlap)
    if difference.largest_share > MOST_CARRIED:
        yield (
            f"one episode carries {100 * difference.largest_share:.0f} % of the evidence, and may carry "
            f"{100 * MOST_CARRIED:.0f} % at most: record more episodes"
        )
    elif difference.carrying_episodes < config.estimate.min_effective_episodes:
        yield (
            f"a few episodes carry the estimate (they count as {difference.carrying_episodes:.1f}, and "
            f"{config.estimate.min_effective_episodes:g} are needed, estimate.min_effective_episodes): record more episodes"
        )
    if not np.isfinite([difference.value, difference.low, difference.high]).all():
        yield "its value has no bound on this log: record more episodes"


def about_tail(first: Candidate) -> Iterator[str]:
    """Say that the interval of a candidate stands on a variance that may not exist.

    On logs whose truth is known such intervals held.
    """
    tail = first.judged and first.judged.tail
    if tail and Tail(*tail).at_least > HEAVY_TAIL:
        shape, error = tail
        yield (
            f"The largest influences on the difference of {first.name} are far apart: the shape of their tail is {shape:.2f} ± "
            f"{error:.2f}, and from {HEAVY_TAIL:g} on a tail has no variance, by which its interval goes. More episodes may "
            "change it by more than the interval says."
        )


def about_returns(returns: np.ndarray) -> Iterator[str]:
    """Say that all returns (E,) of the judging episodes are the same, so that nothing tells policies apart."""
    if len(returns) and returns.min() == returns.max():
        yield (
            f"All {len(returns):,} judging episodes return {returns[0]:.4g}, so nothing tells policies apart: record until "
            "some return more or less, or decide by another reward."
        )


def about_learning(contender: Contender, log: Lineage, judging: Dataset) -> Iterator[str]:
    """Say that a candidate has seen the episodes that are to judge it: it learned from them, or a sweep chose it by them.

    It is asked before anything is fitted. Nothing is said of a candidate of which is unknown what it was made from.
    """
    if contender.lineage is None:
        return
    yield from _about_lessons(contender.lineage, log, judging)
    if contender.kind == "checkpoint":
        yield from about_choosing(contender.uri, judging)


def _about_lessons(candidate: Lineage, log: Lineage, judging: Dataset) -> Iterator[str]:
    """Say that a candidate has learned from the judging episodes, by lineage or by content."""
    if any(diagnostics.about_learning(log, candidate)):
        yield (
            "it has learned from episodes of this log, and seems better on them than it is: split first (offline split), learn "
            "from one side and decide on the other"
        )
        return
    for shared, taught in diagnostics.copies_learned(judging, candidate):
        told = f"{shared:,} of the {judging.ref.episodes:,} judging episodes are also in {taught}"
        yield f"{told}, which it has learned from: leave them out"


OF_SWEEP = re.compile(r"(?P<sweep>.+)/runs/[0-9a-f]{16}/[0-9]+/[^/]+")
"""URI of a checkpoint of a sweep: the digest of its setting and its seed are in it."""


class _Choice(BaseModel):
    """What the result of a sweep says of how it compared its policies."""

    estimated_on: DatasetRef


def about_choosing(candidate: str, judging: Dataset) -> Iterator[str]:
    """Say that a sweep ranked a candidate by the episodes that judge it.

    Arguments:
        candidate: URI of the checkpoint.
    """
    if (path := OF_SWEEP.fullmatch(candidate)) is None:
        return
    sweep = Location.of(path["sweep"])
    if (stored := stored_result(sweep.child(RESULT_FILE), _Choice)) is None:
        return
    estimated_on, episodes = stored[0].estimated_on, judging.ref.episodes
    if shared := diagnostics.shared_episodes(judging, estimated_on.uri, estimated_on.version):
        yield (
            f"{sweep.uri} chose it by {estimated_on.uri}, which has {shared:,} of the {episodes:,} judging episodes, and it "
            "seems better on them than it is: let the sweep estimate on other episodes (estimate_on), or decide on others"
        )


def about_groups(first: Candidate, verdict: Verdict) -> Iterator[str]:
    """Say what to do in groups where a candidate that is to run is shown to be worse."""
    worse = [finding.group for finding in first.groups if finding.shown == "worse"]
    if worse and verdict in ("promote", "test"):
        yield f"Where {' or '.join(worse)}, let what runs today go on: {first.name} is shown to be worse there."


def about_behaviour(model: Examined, *, recorded: bool) -> Iterator[str]:
    """Say that the behaviour always did the same in the same state, or that its probabilities cannot be what is said of them.

    Arguments:
        recorded: their probabilities were recorded; otherwise they are the model's.
    """
    if model.is_deterministic:
        yield (
            "What acted did the same in the same state, so no episode shows what another action comes to: importance sampling "
            "is meaningless, and of the estimates fqe is the word of its Q function alone. Record with exploration."
        )
    elif recorded and model.excess is not None and model.excess > STANDARD_ERRORS and model.excess_nats > NOTICED_NATS:
        yield (
            f"The recorded {columns.ACTION_LOGP} cannot be how probable the actions were: a model that was fitted to other "
            f"episodes finds them {np.exp(model.excess_nats):.3g} times as probable. Either an observation "
            "was known only after the action (a check finds some): leave it out of mapping.obs. Or they are of another "
            "policy, in other units, or were recorded without exploration: record again, or leave that column out at import."
        )
    elif not recorded and model.error is not None and model.error > MOST_MISCALIBRATED:
        yield (
            f"The model of the behaviour is calibrated to within {100 * model.error:.0f} % only, on average over held-out "
            "steps (expected calibration error): record action_logp, or name a better model (estimate.behaviour)."
        )
