"""Episodes whose steps have no place of their own: those that the version before holds are known, or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from offline_core.data.episodes import Episode
from offline_core.data.importing.late_rows import Late
from offline_core.data.importing.report import Counts, Unreadable
from offline_core.data.importing.stored import Stored
from offline_core.errors import EpisodeError


def new_episodes(
    episodes: Sequence[Episode],
    counts: Counts,
    base: Stored,
    late: Late,
    refuse: Callable[[Unreadable], None],
    uri: str,
) -> tuple[list[Episode], Counts]:
    """(the episodes that the version before has not, their counts).

    Equal ones of the same id are duplicates. Others are refused, as where their steps belong is not known.

    Arguments:
        uri: of the source, for messages.
    """
    names = {episode.eps_id for episode in episodes} & base.known
    stored = {episode.eps_id: episode for episode in base.episodes(names)}
    new: list[Episode] = []
    for episode in episodes:
        before = stored.get(episode.eps_id)
        if before is None:
            new.append(episode)
            continue
        counts.episodes -= 1
        counts.steps -= len(episode)
        if before == episode:
            counts.duplicates += len(episode)
            late.unchanged.add(episode.eps_id)
            continue
        counts.rows -= len(episode)
        error = EpisodeError(
            f"Episode {episode.eps_id} has {len(episode):,} steps here and other ones in {base.dataset.ref.uri} version "
            f"{base.dataset.manifest.version}. Only rows with an id and a t, or a time, can be merged with those of earlier "
            "imports: map columns to eps_id and t, and import all again into another dataset."
        )
        refuse(Unreadable(uri, None, len(episode), error, int(episode.terminated)))
    return new, counts
