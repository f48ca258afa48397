"""Tags: names of versions of a dataset. A tag is one small file, so that moving it is one atomic write.

    <uri>/_versions/tags/<name>      the number of the version

`<uri>@<name>` is that version wherever a dataset is read, and `<uri>@<number>` the version of that number.
"""

from __future__ import annotations

import re

from offline_core.data.store.holds import writing
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError, VersionNotFoundError

_VERSIONS = "_versions"
FOLDER = f"{_VERSIONS}/tags"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")


def read_tags(location: Location) -> dict[str, int]:
    """All tags of a dataset, by name.

    Raises:
        CorruptFileError: a file does not hold a number.
    """
    folder = location.child(FOLDER)
    return {name: _number(folder.child(name)) for name in sorted(folder.files(recursive=False)) if _NAME.fullmatch(name)}


def write_tag(location: Location, name: str, version: int) -> None:
    """Let a name stand for a version, whatever it stood for before.

    Raises:
        ConfigError: the name is none.
        VersionNotFoundError: the version is not there any more.
    """
    tag = location.child(f"{FOLDER}/{checked(name)}")
    with writing(location.child(_VERSIONS)):
        if not location.child(f"{_VERSIONS}/{version:06d}.json").is_file():
            raise VersionNotFoundError(f"Dataset {location.uri} has no version {version}, so {name!r} cannot stand for it.")
        tag.write(f"{version}\n".encode())


def remove_tag(location: Location, name: str) -> None:
    """Remove a tag; the version stays.

    Raises:
        VersionNotFoundError: there is no such tag.
    """
    resolve(location, name)
    location.child(f"{FOLDER}/{name}").delete()


def checked(name: str) -> str:
    """The name of a tag.

    Raises:
        ConfigError: it is none.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name[:120]!r} is no tag: a tag begins with a letter, and has letters, digits, '.', '_' and '-'.")
    return name


def split_address(uri: str) -> tuple[str, str] | None:
    """(URI of the dataset, tag or number) of `<uri>@<tag>`; None: it is no such address."""
    path, _, name = uri.rstrip("/").rpartition("@")
    is_below = "/" in path.partition("://")[2] if "://" in path else bool(path)  # and no user before a bucket
    return (path, name) if is_below and (name.isdecimal() or _NAME.fullmatch(name)) else None


def resolve(location: Location, name: str) -> int:
    """The version that a tag, or a number as text, stands for.

    Raises:
        VersionNotFoundError: there is no such tag; the message lists those that exist.
        CorruptFileError: the tag does not hold a number.
    """
    if name.isdecimal():
        return int(name)
    file = location.child(f"{FOLDER}/{checked(name)}")
    if not file.is_file():
        known = ", ".join(read_tags(location)) or "none"
        raise VersionNotFoundError(f"Dataset {location.uri} has no tag {name!r}; it has {known}.")
    return _number(file)


def _number(file: Location) -> int:
    text = file.read().decode(errors="replace").strip()
    if not text.isdecimal():
        raise CorruptFileError(f"{file.uri} does not hold the number of a version. Set the tag again.", uri=file.uri)
    return int(text)
