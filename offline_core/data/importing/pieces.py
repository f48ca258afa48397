"""Join pieces of an episode, as recorders that cut by steps write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from offline_core.data.episodes import Episode, nested
from offline_core.data.importing.config import EpisodesConfig
from offline_core.data.importing.episode_ids import id_of_part
from offline_core.data.importing.report import Counts
from offline_core.errors import EpisodeError


def joined(pieces: Sequence[Episode]) -> tuple[list[Episode], int]:
    """(the pieces of one id in order, those that follow one another or overlap as one, how many steps occurred twice).

    Raises:
        EpisodeError: two pieces have different steps at the same place.
    """
    parts: list[Episode] = []
    twice = 0
    for piece in sorted(pieces, key=lambda piece: piece.t_started):
        overlap = min(parts[-1].t, piece.t) - piece.t_started if parts else 0
        if overlap > 0:
            twice += overlap
            parts[-1] = _united(parts[-1], piece, overlap)
            continue
        try:
            parts[-1:] = [parts[-1].concat(piece) if parts else piece]
        except EpisodeError:  # steps are missing between them
            parts.append(piece)
    return parts, twice


def completed(
    parts: Sequence[Episode], rules: EpisodesConfig, counts: Counts, *, whole: Episode | None = None
) -> list[Episode]:
    """The parts of one id, of which `whole` came before, under the rule for incomplete episodes.

    The first one keeps the id.
    """
    named = [part if i == 0 and whole is None else replace(part, eps_id=_id(part)) for i, part in enumerate(parts)]
    kept: list[Episode] = []
    before = whole
    while named:
        length = next((i for i, part in enumerate(named, 1) if part.is_done), len(named))
        episode, named = named[:length], named[length:]
        began = 0 if before is None else before.t
        late, is_open = episode[0].t_started > began, sum(not part.is_done for part in episode)
        counts.restarted_ids += before is not None
        counts.gaps += length - 1
        counts.late_starts += late
        counts.open_ends += is_open
        if rules.incomplete == "drop" and (late or is_open):
            counts.dropped_episodes += 1
            counts.dropped_steps += sum(map(len, episode))
        else:
            kept += [within_limit(part, rules, counts, began=began) for part in episode]
        before = episode[-1]
    if rules.incomplete == "cut":
        return [replace(part, t_started=0, truncated=part.truncated or not part.is_done) for part in kept]
    return kept


def within_limit(episode: Episode, rules: EpisodesConfig, counts: Counts, *, began: int = 0) -> Episode:
    """The episode, an end at the time limit made a truncation; it began at step `began` of its id."""
    limit = rules.time_limit_steps
    if limit is None or not episode.terminated or episode.t - began < limit:
        return episode
    counts.time_limits += 1
    return replace(episode, terminated=False, truncated=True)


def _united(part: Episode, piece: Episode, overlap: int) -> Episode:
    """Both as one; `overlap` steps from the piece's first one on are in both."""
    start = piece.t_started - part.t_started
    one, other = part.slice(start, start + overlap), piece.slice(0, overlap)
    steps = [(e.get_observations(), e.get_actions(), e.get_rewards()) for e in (one, other)]
    if piece.t == part.t:
        ends_differ = part.is_done and piece.is_done and _end(part) != _end(piece)
    else:
        ends_differ = part.is_done if piece.t > part.t else piece.is_done
    if ends_differ or not nested.equal(*steps):
        raise EpisodeError(
            f"Two pieces of episode {piece.eps_id} contradict each other from step {piece.t_started} to "
            f"{piece.t_started + overlap}. If each file numbers its episodes by itself, set episodes.ids_per: file."
        )
    if part.is_done or piece.t < part.t:
        return part
    return part.slice(0, start, lookback=part.lookback).concat(piece)


def _end(episode: Episode) -> tuple[bool, bool]:
    return episode.terminated, episode.truncated


def _id(part: Episode) -> str:
    return id_of_part(part.eps_id, part.t_started)
