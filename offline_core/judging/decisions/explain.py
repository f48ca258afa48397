"""Ask policies what they would do at recorded steps."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from offline_core.data.curation.observed import columns_of
from offline_core.data.datasets.dataset import Dataset, open_committed
from offline_core.data.datasets.held_out import held_out_beside
from offline_core.data.episodes import EpisodeBatch, columns, nested
from offline_core.data.episodes.nested import Nested
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import number_names
from offline_core.errors import ConfigError
from offline_core.judging.decisions.explanation import Choice, ExplainedStep, Explanation
from offline_core.judging.estimation.contenders import contenders_of
from offline_core.judging.estimation.diagnostics import about_learning, copies_learned
from offline_core.judging.estimation.estimate import check_fits
from offline_core.judging.estimation.logged import log_probabilities
from offline_core.judging.estimation.observations import Observations, tensors_of
from offline_core.judging.estimation.stated import FunctionOfObservations, ProbabilityColumn
from offline_core.judging.estimation.target import TargetPolicy, columns_read, distribution_inputs
from offline_core.policies.lineage import lineage
from offline_core.runtime.units import list_text
from offline_core.runtime.user_code import UserCode

if TYPE_CHECKING:
    import polars as pl

MOST_SEEN = 6
"""Most columns of what was seen that are shown; those that change come first."""
NAMED = 5
"""Most ids of episodes that a message names."""
SPREAD = 500
"""Episodes of a log of one step that are asked about, spread over all of it."""


def explain(
    dataset: str,
    policies: Sequence[str | UserCode],
    *,
    episode: str | None = None,
    version: int | None = None,
    noise: float | None = None,
) -> Explanation:
    """Show for one episode of a log what was done, and what each policy would have done.

    One choice says little: of a log of one step, such as clicks, it is 500 episodes, spread over all of it, if none is named.

    Arguments:
        dataset: URI of the log.
        policies: as candidates of a decision.
        episode: its id; None: the first, or many of a log of one step.
        version: of the log; the latest if None.
        noise: see `EstimateConfig.noise`.

    Raises:
        ConfigError: There is no such episode, or a policy does not fit the log.
        CheckpointError: A policy cannot be read.
    """
    log = open_committed(dataset, version)
    contenders = contenders_of(policies, log, noise=noise)
    for contender in contenders:
        if contender.recording is not None:
            raise ConfigError(
                f"{contender.name} is a candidate of 'offline decide' and 'offline estimate', which fit a clone of it; explain "
                "fits nothing. Decide first, and name the clone that its card names."
            )
        check_fits(contender.policy, log)
    named = {contender.name: contender.policy for contender in contenders}
    index = log.index([columns.EPS_ID, columns.LENGTH])
    is_of_many = episode is None and log.manifest.statistics.lengths.max == 1  # each is a choice by itself, as a click is
    chosen = _spread(index) if is_of_many else _of_episode(log, index, episode)
    batch = _steps(log, index, chosen, columns_read(named.values()))
    observations = Observations(batch, contenders[0].policy.observation_space)
    inputs = {name: distribution_inputs(policy, observations) for name, policy in named.items()}
    history = lineage(log.location.uri, log.manifest.version)
    known = [contender.lineage for contender in contenders if contender.lineage is not None]
    has_learned = any(any(about_learning(history, own)) or any(copies_learned(log, own)) for own in known)
    steps, more = explained(batch, np.arange(batch.rows), named, inputs, log.manifest.input_columns)
    return Explanation(
        dataset=log.ref,
        episode=steps[0].episode,
        policies={contender.name: contender.uri for contender in contenders},
        steps=steps,
        decide_on=held_out_beside(log.ref) if has_learned else log.location.uri,
        more_seen=more,
    )


def _spread(index: pl.DataFrame) -> np.ndarray:
    """(E,) bool: at most `SPREAD` of the episodes that have a step, at equal distances."""
    rows = np.flatnonzero((index[columns.LENGTH] > 0).to_numpy())
    chosen = np.zeros(len(index), bool)
    chosen[rows[np.linspace(0, len(rows) - 1, min(SPREAD, len(rows))).astype(int)]] = True
    return chosen


def _of_episode(log: Dataset, index: pl.DataFrame, eps_id: str | None) -> np.ndarray:
    """(E,) bool: all parts of one episode that have a step; of the first episode if no id is given.

    Raises:
        ConfigError: There is no such episode.
    """
    ids = index[columns.EPS_ID].filter(index[columns.LENGTH] > 0).unique(maintain_order=True)
    wanted = ids[0] if eps_id is None and len(ids) else eps_id
    chosen = ((index[columns.EPS_ID] == wanted) & (index[columns.LENGTH] > 0)).to_numpy()
    if not chosen.any():
        close = difflib.get_close_matches(str(wanted), ids.head(10_000).to_list(), n=1)
        told = f"Did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"{log.location.uri} has no episode {wanted} with a step. {told}It has {len(ids):,}: {list_text(ids, NAMED)}."
        )
    return chosen


def _steps(log: Dataset, index: pl.DataFrame, chosen: np.ndarray, more: Sequence[str]) -> EpisodeBatch:
    """The steps of the chosen episodes, flat, with the columns that policies need."""
    parts = [
        part
        for group, numbers in log.indexed_row_groups(index)
        if chosen[numbers].any()
        for part in group.episodes(only=chosen[numbers])
    ]
    names = (columns.OBS, columns.ACTIONS, columns.REWARDS, *more)
    return EpisodeBatch.of(sorted(parts, key=lambda part: part.t_started), names).flat()


@torch.no_grad()
def explained(
    batch: EpisodeBatch,
    rows: np.ndarray,
    policies: Mapping[str, TargetPolicy],
    inputs: Mapping[str, Tensor],
    made_of: InputColumns | None,
    *,
    explore: bool = True,
) -> tuple[list[ExplainedStep], int]:
    """(what policies would do in some rows of a batch, how many numbers of an observation are not shown).

    Arguments:
        rows: of steps.
        inputs: (R, inputs) of each policy.
        made_of: what the observations and actions of the log are made of.
        explore: the policies sample their actions; otherwise they take the likeliest ones.
    """
    space = next(iter(policies.values())).action_space
    labels = None if made_of is None else made_of.labels
    at = torch.from_numpy(rows)
    taken = nested.map_leaves(lambda leaf: leaf[at], tensors_of(batch, columns.ACTIONS, space))
    done = _words(nested.map_leaves(lambda leaf: leaf.numpy(), taken), labels)
    choices = {name: _choices(policy, inputs[name][at], taken, done, labels, explore) for name, policy in policies.items()}
    seen, more = _seen(batch.leaves(columns.OBS), rows, made_of)
    started = np.zeros(batch.num_episodes, np.int64) if batch.t_started is None else batch.t_started
    episodes = batch.episode[rows]
    times, rewards = rows - batch.first[rows] + started[episodes], batch[columns.REWARDS][rows]
    ids = batch.eps_ids or [str(number) for number in range(batch.num_episodes)]
    steps = [
        ExplainedStep(
            episode=ids[episodes[number]],
            step=int(times[number]),
            seen={name: values[number] for name, values in seen.items()},
            done=done[number],
            reward=float(rewards[number]),
            choices={name: choices_of_policy[number] for name, choices_of_policy in choices.items()},
        )
        for number in range(len(rows))
    ]
    return steps, more


def _choices(
    policy: TargetPolicy,
    inputs: Tensor,
    taken: Nested,
    done: Sequence[str],
    labels: Sequence[str] | Sequence[float] | None,
    explore: bool,
) -> list[Choice]:
    is_certain = isinstance(policy, FunctionOfObservations) and policy.is_certain
    chances: list[float | None] = [None] * len(inputs)
    if not is_certain:
        chances = log_probabilities(policy, inputs, taken, explore=explore).exp().tolist()
    if isinstance(policy, ProbabilityColumn) and not policy.says_all:
        return [Choice(action="–", chance=chance, agrees=False) for chance in chances]
    chosen = policy.head.to_env(policy.head.mode(inputs))
    actions = _words(chosen, labels)
    return [
        Choice(action=action, chance=chance, agrees=action == was, distance=distance)
        for action, chance, was, distance in zip(actions, chances, done, _distances(chosen, taken), strict=True)
    ]


def _distances(actions: Nested, taken: Nested) -> list[float | None]:
    """How far actions (B, …) of a Box are from those that were taken; None of other actions."""
    if not isinstance(actions, np.ndarray) or actions.dtype.kind != "f":
        return [None] * len(nested.leaves(actions)[0])
    apart = np.abs(actions.astype(np.float64) - taken.numpy().astype(np.float64))
    return [*apart.reshape(len(apart), -1).mean(axis=1).tolist()]


def _words(actions: Nested, labels: Sequence[str] | Sequence[float] | None) -> list[str]:
    """Actions (B, …) as people read them: as labels where the log has some."""
    if isinstance(actions, np.ndarray):
        if labels is not None and actions.ndim == 1 and actions.dtype.kind in "iu":
            return [_text(labels[code]) for code in actions.tolist()]
        return [_text(value) for value in actions.reshape(len(actions), -1).tolist()]
    flat = nested.flatten(actions, "")
    return [
        ", ".join(f"{path[1:]} {text}" for path, text in zip(flat, texts, strict=True))
        for texts in zip(*(_words(leaf, None) for leaf in flat.values()), strict=True)
    ]


def _text(value: object) -> str:
    if isinstance(value, list):
        return _text(value[0]) if len(value) == 1 else f"[{', '.join(map(_text, value))}]"
    return f"{round(value, 12) + 0.0:.6g}" if isinstance(value, float) else str(value)


def _seen(leaves: Mapping[str, np.ndarray], rows: np.ndarray, made_of: InputColumns | None) -> tuple[dict[str, list[str]], int]:
    """(some of what was seen, as texts by name; how many more numbers there are); numbers that change are taken first."""
    texts_by_name: dict[str, list[str]] = {}
    for path, leaf in leaves.items():
        some = leaf[rows]
        mapped = columns_of(some, made_of) if path == columns.OBS else {}
        named: dict[str, list[object]] = {name: values.to_list() for name, values in mapped.items() if name != path}
        if not named:
            flat = some.reshape(len(rows), -1)
            named = dict(zip(number_names(path, flat.shape[1]), flat.T.tolist(), strict=True))
        texts_by_name |= {name: [_text(value) for value in values] for name, values in named.items()}
    order = sorted(texts_by_name, key=lambda name: len({*texts_by_name[name]}) < 2)
    chosen = {*order[:MOST_SEEN]}
    return {name: texts for name, texts in texts_by_name.items() if name in chosen}, len(texts_by_name) - len(chosen)
