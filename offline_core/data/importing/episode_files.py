"""Read files with an episode, or a piece of one, a row, of RLlib or of this package: each episode once, checked.

Pieces, as recorders that cut by steps write them, are joined.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import pyarrow.parquet as pq

from offline_core.data.episodes import Episode, columns, decode, nested
from offline_core.data.episodes.codecs import CODECS, codec_of
from offline_core.data.episodes.index import content_of
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.formats.sources.locations import FILESYSTEM
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.importing.action_range import infer_range, steps_of_episode
from offline_core.data.importing.action_units import Range, in_env_units
from offline_core.data.importing.columns_config import ColumnsConfig
from offline_core.data.importing.config import EpisodesConfig, ImportConfig
from offline_core.data.importing.episode_ids import id_of_part, id_within
from offline_core.data.importing.imported import Imported
from offline_core.data.importing.report import Counts, Findings
from offline_core.data.importing.values import conform
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import open_parquet, parquet_errors
from offline_core.errors import ConfigError, CorruptFileError, DataError, EpisodeError, SchemaError
from offline_core.runtime.progress import Bar, progress

Row: TypeAlias = "tuple[bytes | None, EpisodePosition]"


class EpisodePosition(NamedTuple):
    """The position of an episode in the source."""

    file: Location
    group: int
    in_group: int
    """Its number in the row group."""
    row: int
    """Its number in the file."""


def check_for_episodes(config: ImportConfig) -> None:
    """Raises a ConfigError that names what is declared and makes sense for rows of steps alone."""
    of_steps = {
        "source.columns": config.source.columns,
        "source.where": config.source.where,
        "source.arguments": config.source.arguments.keys() - {FILESYSTEM},
        "mapping": config.mapping,
        "columns": config.columns != ColumnsConfig(),
        "episodes.order": config.episodes.order != "auto",
        "episodes.ids_per: date": config.episodes.ids_per == "date",
        "episodes.max_gap": config.episodes.max_gap,
        "episodes.first_t": config.episodes.first_t,
        "episodes.last_new_obs": config.episodes.last_new_obs != "repeat",
    }
    if declared := [name for name, value in of_steps.items() if value]:
        raise ConfigError(
            f"The files hold episodes, and {', '.join(declared)} can only be heeded for rows of steps. Leave that out, and "
            "prune what you imported."
        )


@dataclass
class EpisodeFiles:
    """Reads the episodes of files; those that cannot be read are refused."""

    files: Sequence[Location]
    config: ImportConfig
    findings: Findings
    """Lists or raises what cannot be read, and gets a note on what is inferred."""
    base: Imported | None = None
    """The import of such files that is appended to, which says the range of recorded actions."""
    groups_per_file: int | None = None
    """The first row groups alone; None: all."""
    wholes: dict[str, tuple[str, EpisodePosition]] = field(default_factory=dict)
    """Content and position of whole episodes, by id."""
    pieces: dict[str, dict[tuple[int, str], tuple[Episode, EpisodePosition]]] = field(default_factory=dict)
    """The pieces of episodes, by id, and by first step and content."""
    spaces: StoredSpaces = field(init=False)
    """The declared spaces."""
    recorded_action_range: Range | None = field(init=False)
    """Declared, or inferred from the first steps once they are read."""
    range_shapes: dict[str, tuple[int, ...]] | None = None
    """The shapes of the steps that the range was inferred from; None: it was declared, or not inferred."""

    def __post_init__(self) -> None:
        self.spaces = self.config.spaces()
        self.recorded_action_range = self.config.recorded_action_range if self.base is None else self.base.action_range

    def read(self) -> Iterator[tuple[list[Episode], Counts]]:
        """Yield the episodes of each row group with their counts; at the end, the episodes that were stored in pieces.

        An episode is there twice if one of its id and content came before, as RLlib's recorder writes them. Steps that
        several pieces hold, or a piece and the whole episode, are taken once.
        Memory: a row group, all pieces, and an id for each episode.

        Raises:
            DataError: an episode cannot be read, or contradicts one of the same id, and `unreadable` is "fail"; the message
                names file and row.
        """
        with progress(len(self.files), what="read", unit="file") as bar:
            for rows in self._with_range(self._rows(bar)):
                episodes, counts = [], Counts()
                for item, position in rows:
                    episodes += self._taken(item, position, counts)
                yield episodes, counts
        for eps_id, held in self.pieces.items():
            yield self._completed(self.wholes.get(eps_id), list(held.values()))

    def _rows(self, bar: Bar) -> Iterator[list[Row]]:
        """Yield the rows of each row group."""
        for file in self.files:
            row = 0
            for group, items in enumerate(self._row_groups(file)):
                yield [(item, EpisodePosition(file, group, i, row + i)) for i, item in enumerate(items)]
                row += len(items)
            bar.update(1)

    def _with_range(self, groups: Iterator[list[Row]]) -> Iterator[list[Row]]:
        """Yield the same groups, after the first of them gave the range of recorded actions if it is not declared."""
        held: list[list[Row]] = []
        if self.recorded_action_range is None and self.base is None:

            def episodes() -> Iterator[Episode]:
                for rows in groups:
                    held.append(rows)
                    for item, position in rows:
                        with contextlib.suppress(DataError):  # reported when `read` reaches it
                            yield self._prepared(item, position.file)[0]

            sampled = episodes()
            if (first := next(sampled, None)) is not None:
                steps = map(steps_of_episode, itertools.chain([first], sampled))
                self.recorded_action_range, note = infer_range(steps, first.action_space)
                self.findings.note(note)
                self.range_shapes = None if self.recorded_action_range is None else _shapes(first)
        yield from itertools.chain(held, groups)

    def _row_groups(self, file: Location) -> Iterator[list[bytes | None]]:
        """The rows of each row group, as far as the file can be read."""
        try:
            with parquet_errors(file.uri), open_parquet(file) as parquet:
                schema = parquet.schema_arrow
                if codec_of(schema) is not CODECS["episodes"]:
                    raise SchemaError(f"{file.uri} holds no episodes but {schema.names}; import each kind by itself.")
                for number in range(parquet.num_row_groups)[: self.groups_per_file]:
                    yield _items(parquet, number)
        except DataError as error:  # and no StorageError: what is out of reach is not damaged
            if self.findings.rule == "fail":
                raise
            self.findings.refuse(Unreadable(file.uri, None, 0, error))

    def _taken(self, item: bytes | None, position: EpisodePosition, counts: Counts) -> list[Episode]:
        """Return the episode if it is whole and new. Pieces are noted, and counted when they are joined."""
        try:
            episode, clipped = self._prepared(item, position.file)
            is_whole, content = episode.t_started == 0 and episode.is_done, content_of(episode)
            if is_whole and self.wholes.setdefault(episode.eps_id, (content, position))[0] != content:
                raise EpisodeError(
                    f"Another episode {episode.eps_id} with other steps came before. If each file numbers its episodes by "
                    "itself, set episodes.ids_per: file."
                )
        except DataError as error:
            self._refuse(position, error)
            return []
        if len(episode) == 0:
            counts.dropped_episodes += 1
            return []
        if not is_whole:
            held = self.pieces.setdefault(episode.eps_id, {})
            is_new = held.setdefault((episode.t_started, content), (episode, position))[1] == position
        else:
            is_new = self.wholes[episode.eps_id][1] == position
        if not is_new:
            counts.duplicates += len(episode)
        else:
            self.findings.clipped_actions += clipped
        if is_whole or not is_new:
            counts.rows += len(episode)
        return [within_limit(episode, self.config.episodes, counts)] if is_whole and is_new else []

    def _prepared(self, item: bytes | None, file: Location) -> tuple[Episode, int]:
        """(the episode under the id, and in the spaces and units, that were declared; how many of its actions are clipped)."""
        if item is None:
            raise CorruptFileError("The row is null; it has to hold the bytes of an episode.")
        episode = decode(item).validate()
        observation_space, action_space = self.spaces
        clipped = 0
        if self.range_shapes is not None and (shapes := _shapes(episode)) != self.range_shapes:
            name = min(name for name in shapes.keys() | self.range_shapes if shapes.get(name) != self.range_shapes.get(name))
            raise SchemaError(
                f"Column {name!r} of episode {episode.eps_id} has values of shape {shapes.get(name)}, earlier ones of "
                f"{self.range_shapes.get(name)}, from which the range of actions was inferred. Import each "
                "environment by itself, or declare recorded_action_range."
            )
        if self.recorded_action_range is not None:
            action_space = episode.action_space if action_space is None else action_space
            env_actions = in_env_units(episode.actions, episode.extras, self.recorded_action_range, action_space)
            episode = replace(episode, actions=env_actions.actions, extras=episode.extras | env_actions.extras)
            clipped = int(env_actions.clipped.sum())
        if action_space is not None:
            actions = conform(episode.actions, action_space, columns.ACTIONS)
            episode = replace(episode, actions=actions, action_space=action_space)
        if observation_space is not None:
            observations = conform(episode.observations, observation_space, columns.OBS)
            episode = replace(episode, observations=observations, observation_space=observation_space)
        return replace(episode, eps_id=id_within(episode.eps_id, file.uri, self.config.episodes.ids_per)), clipped

    def _completed(
        self, known: tuple[str, EpisodePosition] | None, held: Sequence[tuple[Episode, EpisodePosition]]
    ) -> tuple[list[Episode], Counts]:
        """Return the episodes that the pieces of one id form, except for the whole episode that was returned before."""
        pieces = [piece for piece, _ in held]
        counts = Counts(rows=sum(map(len, pieces)))
        whole = None if known is None else self._again(known[1])
        try:
            parts, counts.duplicates = joined(pieces if whole is None else [whole, *pieces])
        except EpisodeError as error:
            for _, position in held:
                self._refuse(position, error)
            return [], Counts()
        return completed(parts if whole is None else parts[1:], self.config.episodes, counts, whole=whole), counts

    def _again(self, position: EpisodePosition) -> Episode:
        """Read an episode for the second time."""
        file = position.file
        with parquet_errors(file.uri), open_parquet(file) as parquet:
            return self._prepared(_items(parquet, position.group)[position.in_group], file)[0]

    def _refuse(self, position: EpisodePosition, error: DataError) -> None:
        self.findings.refuse(Unreadable(position.file.uri, position.row, 1, error))


def _items(parquet: pq.ParquetFile, group: int) -> list[bytes | None]:
    return parquet.read_row_group(group, columns=[columns.ITEM])[columns.ITEM].to_pylist()  # type: ignore[no-any-return]


def _shapes(episode: Episode) -> dict[str, tuple[int, ...]]:
    """Return the shape of a step, by column."""
    trees = {columns.OBS: episode.observations, columns.ACTIONS: episode.actions}
    return {path: leaf.shape[1:] for name, tree in trees.items() for path, leaf in nested.flatten(tree, name).items()}


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
    named = [
        part if i == 0 and whole is None else replace(part, eps_id=id_of_part(part.eps_id, part.t_started))
        for i, part in enumerate(parts)
    ]
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
        if rules.incomplete == "end" and not (named or episode[-1].is_done or _is_at_limit(episode[-1], rules, began)):
            counts.declared_ends += 1
            episode[-1] = replace(episode[-1], terminated=True)
        if rules.incomplete == "drop" and (late or is_open):
            counts.dropped_episodes += 1
            counts.dropped_steps += sum(map(len, episode))
        else:
            kept += [within_limit(part, rules, counts, began=began) for part in episode]
        before = episode[-1]
    if rules.incomplete in ("cut", "end"):
        return [replace(part, t_started=0, truncated=part.truncated or not part.is_done) for part in kept]
    return kept


def within_limit(episode: Episode, rules: EpisodesConfig, counts: Counts, *, began: int = 0) -> Episode:
    """The episode, an end at the time limit made a truncation; it began at step `began` of its id."""
    if not episode.terminated or not _is_at_limit(episode, rules, began):
        return episode
    counts.time_limits += 1
    return replace(episode, terminated=False, truncated=True)


def _is_at_limit(episode: Episode, rules: EpisodesConfig, began: int) -> bool:
    return rules.time_limit_steps is not None and episode.t - began >= rules.time_limit_steps


def _united(part: Episode, piece: Episode, overlap: int) -> Episode:
    """Both as one; `overlap` steps from the piece's first one on are in both."""
    start = piece.t_started - part.t_started
    one, other = part.slice(start, start + overlap), piece.slice(0, overlap)
    steps = [(e.get_observations(), e.get_actions(), e.get_rewards()) for e in (one, other)]
    if piece.t == part.t:
        ends = ((episode.terminated, episode.truncated) for episode in (part, piece) if episode.is_done)
        ends_differ = len({*ends}) > 1
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
