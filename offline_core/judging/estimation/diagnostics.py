"""Warnings about an estimate: sentences that say why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.episodes import columns
from offline_core.errors import OfflineError
from offline_core.judging.estimation.config import EstimateConfig
from offline_core.judging.estimation.estimators import FAR, errors_of, fitting
from offline_core.judging.estimation.result import Estimate
from offline_core.judging.estimation.trajectories import Trajectories
from offline_core.policies.kind import WORDS
from offline_core.policies.lineage import Lineage, Node, episodes_in
from offline_core.runtime.units import number_text

if TYPE_CHECKING:
    from offline_core.judging.estimation.contenders import Contender
    from offline_core.policies.manifest import PolicyManifest

CHOSEN_BY = ("prune",)
"""Operations that leave only a selection of the episodes that a policy played."""
OF_VALUES = ("dqn", "cql")
"""Algorithms whose logits for Discrete actions are values: the most likely action is meant, and no distribution."""
STANDARD_ERRORS = 4.0
NOTICED = 0.01
"""How far a mean ratio may be from 1 for the precision of what was recorded."""
ENOUGH_STEPS = 30
"""Effective steps below which the standard error of a mean ratio says nothing."""
MOST_UNRECORDED = 0.5
"""Share of an estimate that may be about what was not recorded."""
MOST_MISSING = 0.5
"""Share of the recorded return that the Q function may be off by, on average."""
MOST_WEIGHT = 0.25
"""Share of one episode in all weights, above which an estimate is about that one."""
LEAST_SINGLES, NEARLY_ALL = 8, 0.9
"""Contents that come once, and the share of them that comes equally often in copies."""
TIMES_TO_CONVERGE = 4.0
"""How often what a Q function began with is discounted by e until it is forgotten: 2 % of it are left then."""
TIMES_A_STEP = 2.0
"""Sum of the target rates of all updates that each step of a fixed horizon needs.

A target network that follows by a share takes one over that share of updates to look a step further.
"""


def about_learning(dataset: Lineage, policy: Lineage) -> Iterator[str]:
    """Warn of a policy that learned from episodes that it is estimated on.

    Both come from the same episodes, and not from the two sides of a split.
    """
    common = _sources(dataset, beyond_splits=False) & _sources(policy)
    common |= _sources(dataset) & _sources(policy, beyond_splits=False)
    if common:
        yield (
            f"{policy.nodes[0].uri} has learned from episodes that are, or may be, in {dataset.nodes[0].uri}, and on those it "
            "seems better than it is. Split first, learn from one side, and estimate on the other ('offline split', held_out)."
        )


def copies_learned(dataset: Dataset, policy: Lineage) -> Iterator[tuple[int, str]]:
    """Yield (how many of these episodes a policy has learned from, the dataset that holds them there, too).

    Lineage does not show them: a log that was imported again from another folder has another one, and other ids.
    """
    taught = {parent for parent, child in policy.edges if policy.nodes[child].kind == "checkpoint"}
    for node in episodes_in(policy):
        is_known = node.kind == "dataset" and node.state == "found" and policy.nodes.index(node) in taught
        if is_known and (shared := shared_episodes(dataset, node.uri, node.version)):
            yield shared, node.uri


def shared_episodes(dataset: Dataset, uri: str, version: int | None) -> int:
    """How many of these episodes another dataset holds, too; 0 if it is gone.

    Those are meant that have one id and content in both, and, where one holds copies of the other, one content.
    """
    names = [columns.EPS_ID, columns.CONTENT]
    try:
        here, there = (opened.index(names).drop_nulls() for opened in (dataset, open_dataset(uri, version)))
    except OfflineError:
        return 0
    some, others = (pairs[columns.CONTENT].value_counts(name="times") for pairs in (here, there))
    if _are_copies(some, others) or _are_copies(others, some):
        return here.join(others, on=columns.CONTENT, how="semi").height
    return here.unique().join(there, on=names, how="semi").height


def _are_copies(some: pl.DataFrame, others: pl.DataFrame) -> bool:
    """Whether nearly all contents that come once in some episodes come equally often in others, as a folder's copies do.

    By chance they do not: how often a content comes that may come again differs from one to the next.

    Arguments:
        some, others: content, and how many `times` it comes.
    """
    singles = some.filter(pl.col("times") == 1)
    found = singles.join(others, on=columns.CONTENT, suffix="_there")["times_there"].value_counts()["count"].to_list()
    return len(singles) >= LEAST_SINGLES and max(found, default=0) >= NEARLY_ALL * len(singles)


def _only_copies_went(node: Node) -> bool:
    """Whether a prune dropped only episodes that were there twice."""
    return node.state == "found" and {*open_dataset(node.uri, node.version).manifest.operation.config} == {"drop_duplicates"}


def about_history(dataset: Dataset, graph: Lineage) -> Iterator[str]:
    """Warn of episodes that are no fair sample of what a policy did, or of which that is unknown."""
    uri = dataset.location.uri
    datasets = [node for node in episodes_in(graph) if node.kind == "dataset"]
    recordings = [open_dataset(n.uri, n.version) for n in datasets if n.operation == "record"]
    if greedy := [recording.ref.uri for recording in recordings if recording.manifest.operation.config.get("explore") is False]:
        yield (
            f"{greedy[0]} was recorded without exploration: its actions were not drawn by any probabilities, and it does not "
            "hold other actions. Record with explore."
        )
    if chosen := sorted({node.operation for node in datasets if node.operation in CHOSEN_BY and not _only_copies_went(node)}):
        yield (
            f"Episodes of {uri} were selected ({', '.join(chosen)}): if that was by their returns, no weight makes up for it. "
            "Estimate on what was recorded."
        )
    missing = [node.uri for node in datasets if node.state != "found"]
    if missing or not graph.is_whole:
        why = f", as {missing[0]} has changed or is gone" if missing else ""
        yield (
            f"The history of {uri} is unknown{why}: its episodes may have been selected by their returns, or recorded without "
            "exploration."
        )


def about_origin(contender: Contender, log: Lineage, dataset: Dataset) -> Iterator[str]:
    """Warn as `about_learning` does, or of copies of its episodes, or of a policy of which is unknown what it was made from."""
    if contender.lineage is not None:
        if said := [*about_learning(log, contender.lineage)]:
            yield from said
            return
        for shared, taught in copies_learned(dataset, contender.lineage):
            yield (
                f"{shared:,} of the {dataset.ref.episodes:,} episodes of {dataset.location.uri} are also in {taught}, which "
                f"{contender.name} has learned from, and on those it seems better than it is. Estimate on others."
            )
    else:
        yield (
            f"What {contender.name} was made from is unknown: if it was these episodes, it seems better on them than it is. "
            "Judge it on later ones."
        )


def about_clone(contender: Contender) -> Iterator[str]:
    """Say that a clone stands for the behaviour of a dataset, and how far it can be believed."""
    if contender.recording is None or contender.clone is None:
        return
    clone, dataset = contender.clone, contender.recording.location.uri
    if clone.error is None:
        checked = "Nothing checks how near it is to what acted, for its actions are no list"
    else:
        checked = (
            f"It is calibrated to within {100 * clone.error:.1f} %, on average over {clone.steps:,} held-out steps (expected "
            "calibration error); that does not show that it does the same in each state"
        )
    recorder = (
        "" if contender.recorder is None else f" By its lineage {contender.recorder} recorded it: name that in its place."
    )
    yield (
        f"The behaviour of {dataset} is judged by a clone of it, {clone.checkpoint}. {checked}. Intervals are those of the "
        f"clone.{recorder}"
    )


def about_noise(noise: float | None, contenders: Sequence[Contender]) -> Iterator[str]:
    """Warn of noise that is played with nothing."""
    if noise is not None and not any(contender.kind in ("rule", "function", "onnx") for contender in contenders):
        yield (
            f"No policy is played with the noise of {noise:g} that was asked for: a rule, a function or an ONNX file is, and "
            f"{contenders[0].name} is {WORDS[contenders[0].kind]}. Leave noise out."
        )


def about_sampling(manifest: PolicyManifest | None) -> Iterator[str]:
    """Warn of actions that are sampled from values, which are no distribution."""
    algorithm = None if manifest is None else manifest.operation.config.get("algorithm")
    if manifest is not None and algorithm in OF_VALUES and manifest.action_space.get("space") == "discrete":
        yield (
            f"What {algorithm} learns of Discrete actions are their values, and this samples by them as if they were logits, "
            "which they are not. Set explore to false for the greedy policy."
        )


def about_parts(begins_late: np.ndarray) -> Iterator[str]:
    """Warn of episodes that begin after their first step: (E,) bool."""
    if begins_late.any():
        yield (
            f"{begins_late.sum():,} of {len(begins_late):,} episodes begin after their first step, or go on with another: they "
            "are taken for whole ones, so the estimates are of what comes from there on, and the intervals too narrow. "
            "Estimate on whole episodes: prune by their length, or, where a column says how episodes end, import with "
            "episodes.incomplete: drop."
        )


def about_weights(episodes: Trajectories, *, by: str, noticed: float = NOTICED) -> Iterator[str]:
    """Warn of ratios that cannot be, and of weights that are all 0.

    The mean of π/b over what b did is 1, at each step: its errors do not add up, as what came before says nothing of them.

    Arguments:
        by: what says how probable the actions were.
        noticed: how far their mean may be from 1, whatever its standard error.
    """
    largest = max(float(part.log_ratios.max()) for part in episodes.parts())
    largest = largest if np.isfinite(largest) else 0.0
    steps, total, squares, expected = len(episodes.rewards), 0.0, 0.0, np.exp(min(-largest, FAR))  # in units of the largest
    for part in episodes.parts():
        ratios = np.exp(part.log_ratios - largest)
        total, squares = total + float(ratios.sum()), squares + float((ratios**2).sum())
    mean = total / steps
    error = (max(squares / steps - mean**2, 0.0) / steps) ** 0.5
    size = total**2 / squares if squares else 0.0
    if size >= ENOUGH_STEPS and abs(mean - expected) > max(STANDARD_ERRORS * error, noticed * expected):
        yield (
            f"An action is {mean / expected:.3g} times as likely to this policy as it was, on average; of what "
            f"was really done that is 1, give or take {STANDARD_ERRORS * error / expected:.2g}. So "
            + (
                f"{by} is not how probable the actions were (of another policy, or in other units), or steps were left out"
                if mean > expected
                else f"either the log lacks most of what this policy does, or {by} is not how probable the actions were (in "
                "other units, say), or steps were left out"
            )
            + ": trust no estimate."
        )
    if episodes.lost_at is not None:
        yield (
            f"At step {episodes.lost_at} every episode has done what this policy never does: from there on pdis counts "
            "nothing, dr and wdr are what the Q function says, and is, wis and wpdis have nothing to say at all. Record "
            "more of what it would do."
        )


def about_horizon(config: EstimateConfig, lengths: np.ndarray, is_open: np.ndarray, share: float) -> Iterator[str]:
    """Warn of an estimate of which most was not recorded.

    Arguments:
        lengths: (E,) steps that were recorded and count.
        is_open: (E,) bool which recordings end before the horizon.
        share: see `unrecorded_share`.
    """
    if share <= MOST_UNRECORDED:
        return
    ends, counts = np.unique(lengths[is_open], return_counts=True)
    usual = int(counts.argmax())
    fitted = fitting(config.methods)
    others = [name for name in config.methods if name not in fitted]
    most = f"{counts[usual]:,} of them after {ends[usual]:,} steps"
    said = [f"{', '.join(fitted)} have the Q function's word for it alone"] if fitted else []
    said += [f"{', '.join(others)} leave it out"] if others else []
    yield (
        f"{100 * share:.0f} % of the return was not recorded: {is_open.sum():,} of {len(lengths):,} episodes did not "
        f"terminate, and their recordings end too early ({most}). Of what follows, "
        f"{'; '.join(said)}. If episodes end there, set horizon to recorded or to a number of steps; otherwise record longer "
        "episodes, or lower gamma."
    )


def about_convergence(config: EstimateConfig, open_episodes: int, horizon: int | None = None) -> Iterator[str]:
    """Warn of a Q function with too few updates to look as far as open episodes go on."""
    fitted = fitting(config.methods)
    discounted = TIMES_TO_CONVERGE / (1 - config.gamma) if config.gamma < 1 else np.inf
    needed = min(discounted, np.inf if horizon is None else TIMES_A_STEP * horizon)
    done = config.fqe.updates * config.fqe.target_rate
    if not fitted or not open_episodes or done >= needed:
        return
    left = f"still has {100 * np.exp(-done * (1 - config.gamma)):.0f} % of what it began with"
    yield (
        f"{open_episodes:,} episodes are open, and of what follows them {', '.join(fitted)} know too little: the Q function "
        f"{left if needed == discounted else f'has not looked {horizon:,} steps ahead'}. Raise fqe.updates or fqe.target_rate "
        f"until their product is {needed:,.0f}, or lower {'gamma' if horizon is None else 'gamma or horizon'}."
    )


def about_q(episodes: Trajectories) -> Iterator[str]:
    """Warn of a Q function that does not fit what was recorded.

    Of the right one, r + γ V(s') - Q(s, a) is 0 on average after any action of any policy. Discounted and added up over an
    episode, these are what the recorded actions came to beyond what it said of them.
    """
    if episodes.model is None:
        return
    missing = np.concatenate([np.add.reduceat(part.discounts * errors_of(part), part.starts) for part in episodes.parts()])
    error = missing.std() / len(episodes) ** 0.5
    scale = max(abs(episodes.returns.mean()), float(episodes.returns.std()))
    if abs(missing.mean()) > max(MOST_MISSING * scale, STANDARD_ERRORS * error):
        told = "less" if missing.mean() > 0 else "more"
        recorded = number_text(episodes.returns.mean())
        yield (
            f"The Q function expects {number_text(abs(missing.mean()))} {told} of an episode than its recorded steps show, on "
            f"average; the recorded return is {recorded}. It has not learned how much the returns are: fqe is "
            "as wrong as that, and so are dr and wdr where weights do not put it right. Raise fqe.updates or fqe.target_rate."
        )


def about_size(estimates: Mapping[str, Estimate], config: EstimateConfig) -> Iterator[str]:
    """Warn of too few episodes that count once they are weighed, or of one with too much of the weights."""
    few = {
        name: estimate.effective_episodes
        for name, estimate in estimates.items()
        if estimate.effective_episodes is not None and estimate.effective_episodes < config.min_effective_episodes
    }
    if few:
        told = ", ".join(f"{name} {size:.1f}" for name, size in few.items())
        yield (
            f"So few episodes count that these estimates mean nothing (effective episodes: {told}). Record more, or episodes "
            "of a policy that is more like this one."
        )
    heavy = {name: estimate.largest_weight or 0.0 for name, estimate in estimates.items() if name not in few}
    if heavy := {name: share for name, share in heavy.items() if share > MOST_WEIGHT}:
        told = ", ".join(f"{name} {100 * share:.0f} %" for name, share in heavy.items())
        yield (
            f"One episode has too much of all weights ({told}), so the estimates are mostly what it returned. Record more, or "
            "episodes of a policy that is more like this one."
        )


def _sources(graph: Lineage, *, beyond_splits: bool = True) -> set[str | None]:
    return {node.fingerprint for node in episodes_in(graph, beyond_splits=beyond_splits) if node.kind != "checkpoint"}
