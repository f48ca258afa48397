"""Names of what was forgotten in other files than data: cards, reports, lists of rows that could not be read."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from offline_core.errors import CorruptFileError
from offline_core.retention.catalog import Catalog
from offline_core.storage.json_files import with_checksum, without_checksum

MIN_LENGTH = 4
"""Shorter names are in any text by chance."""
TEXTS = (".json", ".jsonl", ".ndjson", ".html", ".md", ".txt", ".csv", ".yaml", ".yml", ".svg")
FORGOTTEN = b"(forgotten)"
_LITERAL = re.compile(r"'((?:[^']|'')*)'")


@dataclass(frozen=True, slots=True)
class Names:
    """What must not stand anywhere any more: ids, and the texts of the condition."""

    names: tuple[bytes, ...]
    """Plain, and as JSON and HTML write them; the longest first."""

    @classmethod
    def of(cls, ids: Iterable[str], where: str) -> Names:
        literals = (match.replace("''", "'") for match in _LITERAL.findall(where))
        plain = {name for name in (*ids, *literals) if len(name) >= MIN_LENGTH}
        written = {form.encode() for name in plain for form in (name, json.dumps(name)[1:-1], html.escape(name))}
        return cls(tuple(sorted(written, key=lambda name: (-len(name), name))))

    def __contains__(self, data: object) -> bool:
        return isinstance(data, bytes) and any(name in data for name in self.names)

    def removed(self, data: bytes) -> bytes:
        """The same text with other words in their place."""
        for name in self.names:
            data = data.replace(name, FORGOTTEN)
        return data


def mentions(catalog: Catalog, names: Names) -> tuple[list[str], list[str]]:
    """(text files that hold a name, other files that do), relative to the root; neither data nor manifests of datasets."""
    own = {f"{name}/{file}" if name else file for name in catalog.datasets for file in catalog.files_of(name)}
    for name, known in catalog.datasets.items():
        late = (file.path for dataset in known for file in dataset.manifest.all_files)
        own |= {f"{name}/{path}" if name else path for path in late}
    texts: list[str] = []
    others: list[str] = []
    for file in catalog.sizes:
        if file not in own and "_versions/" not in file and catalog.root.child(file).read() in names:
            (texts if file.endswith(TEXTS) else others).append(file)
    return texts, others


def rewrite(catalog: Catalog, file: str, names: Names) -> None:
    """Replace the names in a text; a checksum is made anew."""
    place = catalog.root.child(file)
    data = place.read()
    try:
        body = without_checksum(data, place.uri)
    except CorruptFileError:
        body = data
    changed = names.removed(body)
    place.write(changed if body == data else with_checksum(changed.decode()))
