"""Everything below a root: the datasets with all their versions, and the policies."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from offline_core.data.datasets.dataset import VERSIONS, Dataset, open_version
from offline_core.data.datasets.manifest import Parent
from offline_core.data.importing.late_files import LATE
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import READERS
from offline_core.data.store.stores import TEMPORARY
from offline_core.errors import DatasetNotFoundError, StorageError
from offline_core.policies.manifest import POLICY_FILE, PolicyManifest, read_policy_manifest

_MANIFEST = re.compile(rf"(?:(.*)/)?{VERSIONS}/(\d{{6,}})\.json")
_HASH = r"[0-9a-f]{12}\.parquet"
_DATA = re.compile(rf"(?:[^_./][^/]*/run-\d{{6,}}-\d{{5,}}/)?(?!{re.escape(TEMPORARY)})[^_./][^/]*-\d{{6,}}-{_HASH}")
"""What writers and recorders call data files."""
_LATE = re.compile(rf"{LATE}/(?:cuts|rows)-(?:[^/]+-)?{_HASH}")


@dataclass(frozen=True)
class Catalog:
    """What is below a root."""

    root: Location
    sizes: Mapping[str, int]
    """Bytes of each file, by its name relative to the root."""
    datasets: Mapping[str, Sequence[Dataset]]
    """All versions by the name of the dataset's folder relative to the root (empty: the root is one), oldest first."""
    policies: Mapping[str, PolicyManifest]
    """By the name of the folder."""

    @property
    def versions(self) -> Iterator[Dataset]:
        """All versions of all datasets."""
        for versions in self.datasets.values():
            yield from versions

    def place(self, name: str) -> Location:
        """A folder or file below the root."""
        return self.root.child(name) if name else self.root

    @functools.cached_property
    def _by_fingerprint(self) -> dict[str, list[Dataset]]:
        found: dict[str, list[Dataset]] = {}
        for version in self.versions:
            for fingerprint in version.manifest.fingerprints:  # each hashes the names of all files
                found.setdefault(fingerprint, []).append(version)
        return found

    def made_from(self, parents: Sequence[Parent]) -> list[Dataset]:
        """The versions that parents name, as they are now."""
        named = (parent.fingerprint for parent in parents if parent.kind == "dataset")
        return [version for fingerprint in dict.fromkeys(named) for version in self._by_fingerprint.get(fingerprint, ())]

    def files_of(self, name: str) -> list[str]:
        """The data files of a dataset, relative to its folder: those named as this package does, not of datasets below it."""
        return [file for file in self._inside(name) if _DATA.fullmatch(file)]

    def late_files_of(self, name: str) -> list[str]:
        """The files of a dataset that only appends read, likewise."""
        return [file for file in self._inside(name) if _LATE.fullmatch(file)]

    def _inside(self, name: str) -> list[str]:
        prefix = f"{name}/" if name else ""
        below = [f"{other}/" for other in self.datasets if other != name and f"{other}/".startswith(prefix)]
        inside = (file for file in self.sizes if file.startswith(prefix))
        return [file.removeprefix(prefix) for file in inside if not any(file.startswith(other) for other in below)]


def read_catalog(root: str) -> Catalog:
    """List a root and read all manifests.

    Raises:
        DatasetNotFoundError: there is no dataset.
        CorruptFileError, CheckpointError: a manifest cannot be read, so that it is not known what it needs.
    """
    location = Location.of(root)
    sizes = location.sizes()
    found: dict[str, list[int]] = {}
    for file in sizes:
        if match := _MANIFEST.fullmatch(file):
            found.setdefault(match[1] or "", []).append(int(match[2]))
    if not found:
        location.check_bucket()
        raise DatasetNotFoundError(f"There is no dataset at or below {location.uri}. Check the path.")
    places = {name: location.child(name) if name else location for name in sorted(found)}
    with ThreadPoolExecutor(READERS) as pool:  # remote manifests take long one after the other
        datasets = {
            name: [
                dataset
                for dataset in pool.map(lambda number, place=place: _opened(place, number), sorted(found[name]))
                if dataset is not None
            ]
            for name, place in places.items()
        }
        folders = [posixpath.dirname(file) for file in sizes if posixpath.basename(file) == POLICY_FILE]
        manifests = pool.map(lambda name: read_policy_manifest((location.child(name) if name else location).uri), folders)
        policies = dict(zip(folders, manifests, strict=True))
        return Catalog(location, sizes, {name: known for name, known in datasets.items() if known}, policies)


def _opened(place: Location, number: int) -> Dataset | None:
    """A version that was listed; None: another run deleted it meanwhile."""
    try:
        return open_version(place, number)
    except StorageError:
        if place.child(f"{VERSIONS}/{number:06d}.json").is_file():
            raise
        return None
