"""What people say of a dataset: author, license, description, source. It is of the dataset, and of no version of it.

    <uri>/_versions/about/000001.json     what is said from then on, when and by whom; the last entry holds
    <uri>/_about/000001.json              the same of a training, or of another result

A new dataset begins with what its parents say, or what is stated in the files that it is imported from. What is said is in no
fingerprint: it may be corrected at any time, and nothing is made anew for that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import Field, ValidationError

from offline_core.data.datasets.manifest import Parent
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.errors import ConfigError, CorruptFileError, OfflineError, VersionExistsError
from offline_core.runtime.parameter_errors import problems
from offline_core.runtime.prefetch import several
from offline_core.runtime.provenance import this_user
from offline_core.runtime.result import StoredModel
from offline_core.secrets import masked_text

log = logging.getLogger(__name__)

FOLDER, OF_RESULTS = "_versions/about", "_about"
_MOST_CHARACTERS = 20_000


class About(StoredModel):
    """What people say of a dataset; None: nothing."""

    author: str | None = Field(None, description="Who made it.", max_length=_MOST_CHARACTERS)
    license: str | None = Field(
        None, description="Under which it may be used, best as SPDX names it: CC-BY-4.0.", max_length=_MOST_CHARACTERS
    )
    description: str | None = Field(None, description="What it is, in words.", max_length=_MOST_CHARACTERS)
    source: str | None = Field(None, description="Where it is from: a link, a paper, a plant.", max_length=_MOST_CHARACTERS)

    @property
    def facts(self) -> dict[str, str]:
        """What is said, by name."""
        return {name: value for name in About.model_fields if (value := getattr(self, name))}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> About:
        """What another program states: of what is text, as much as can be said."""
        texts = {name: value.strip() for name in cls.model_fields if isinstance(value := values.get(name), str)}
        return About(**{name: text[:_MOST_CHARACTERS] for name, text in texts.items() if text})

    @classmethod
    def together(cls, several: Iterable[About]) -> About:
        """Join what is said of several datasets; texts that differ follow one another."""
        facts: dict[str, dict[str, None]] = {}
        for about in several:
            for name, value in about.facts.items():
                facts.setdefault(name, {})[value] = None
        return cls.of({name: ("\n\n" if name == "description" else "; ").join(values) for name, values in facts.items()})


class _Entry(About):
    said_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    said_by: str = Field(default_factory=this_user, max_length=200)


def read_about(location: Location, folder: str = FOLDER) -> About:
    """What is said of the dataset in this folder, or with `OF_RESULTS` of the result.

    Raises:
        CorruptFileError: the last entry is damaged, or one before it is missing.
    """
    return _read(location, folder)[1]


def say_about(location: Location, values: Mapping[str, str | None], folder: str = FOLDER) -> About:
    """Say this of a dataset, or with `OF_RESULTS` of a result; what is not named stays, and an empty text is no longer said.

    Raises:
        ConfigError: a text is too long.
        CorruptFileError: the log is damaged.
    """
    while True:
        number, before = _read(location, folder)
        facts = {name: None if value is None else masked_text(value.strip()) or None for name, value in values.items()}
        try:
            entry = _Entry.model_validate(before.facts | facts)
        except ValidationError as error:
            raise ConfigError(f"This cannot be said of {location.uri}: {problems(error)}.") from error
        about = About(**entry.facts)
        if about == before:
            return about
        try:
            NumberedLog(location, folder).append(entry.model_dump(mode="json", exclude_none=True), after=number)
        except VersionExistsError:  # another writer said something meanwhile
            continue
        return about


def begin_about(location: Location, parents: Sequence[Parent], stated: About) -> None:
    """Begin what is said of a new dataset with what is stated, and what its parents say; of one that says something, nothing.

    Parents that are not there any more say nothing.
    """
    if NumberedLog(location, FOLDER).listed().numbers:
        return
    places = {parent.uri for parent in parents if parent.kind == "dataset"} - {location.uri}
    inherited = About.together(several(_said_by, sorted(places)))
    if facts := inherited.facts | stated.facts:
        say_about(location, facts)


def _said_by(uri: str) -> About:
    try:
        return read_about(Location.of(uri))
    except OfflineError as error:
        log.warning("What is said of %s is not known here: %s", uri, error)
        return About()


def _read(location: Location, folder: str) -> tuple[int, About]:
    """(number of the last entry, what it says)."""
    last: dict[str, Any] | None = next(NumberedLog(location, folder).newest_first(), None)
    if last is None:
        return 0, About()
    try:
        return int(last["number"]), About.model_validate(last)
    except ValidationError as error:
        uri = location.child(folder).uri
        raise CorruptFileError(f"A file in {uri} is no entry of what is said: {problems(error)}.", uri=uri) from error
