"""What the pages of a root show, as values by name: all of them inside one file, or each when a page asks for it.

A name is a list: ["runs"], ["curves", "sweep/bc"], ["episode", "recording", 17]. The script of the pages knows no difference.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import polars as pl

from offline_core.data.datasets.catalogue import Catalogue, FileState
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.marks import EpisodeName, read_marks
from offline_core.data.episodes import columns
from offline_core.data.store.location import Location
from offline_core.keeping.homepage.config import ReportConfig
from offline_core.keeping.homepage.datasets import dataset_in, datasets_of, scores_of
from offline_core.keeping.homepage.explorer import (
    MAX_NUMBERS,
    Groups,
    clip_of,
    clips_of,
    episodes_of,
    facts_of,
    matching,
    read_episode,
    steps_of,
)
from offline_core.keeping.homepage.graph import graph_of
from offline_core.keeping.homepage.page_contents import PageContents
from offline_core.keeping.homepage.policies import decisions_of, policies_of, policy_in, registry_of
from offline_core.keeping.homepage.runs import LEAST_POINTS, MOST_POINTS, POINTS, curves_in, runs_of
from offline_core.keeping.homepage.signals import actions_beside, signals_of
from offline_core.keeping.homepage.values import minute_now, rows_of

Value = Any
MOST_ON_OVERVIEW, BEST, UNFINISHED = 20, 10, 5
MOST_INDICES = 4
"""Of datasets, kept for the next episode that is asked for: a row an episode."""


@dataclass
class Memory:
    """What was read before, for the next look at the same root."""

    files: dict[str, tuple[FileState, Any]] = field(default_factory=dict)
    indices: OrderedDict[str, tuple[pl.DataFrame, Groups]] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def forget_others(self, files: Mapping[str, FileState]) -> None:
        """Forget the files that are gone."""
        for name in self.files.keys() - files.keys():
            del self.files[name]

    def index(self, dataset: Dataset) -> tuple[pl.DataFrame, Groups]:
        """The index of a version of a dataset, and its row groups: footers of files are read once, too."""
        key = f"{dataset.location.uri}@{dataset.manifest.version} {dataset.manifest.fingerprint}"
        with self.lock:
            if key not in self.indices:
                index = dataset.index()
                self.indices[key] = index, [*dataset.indexed_row_groups(index)]
            self.indices.move_to_end(key)
            while len(self.indices) > MOST_INDICES:
                self.indices.popitem(last=False)
            return self.indices[key]


class Site:
    """The values of a root as it is at one moment.

    Arguments:
        memory: from looks before, for a server; None: all values are for one file.
    """

    def __init__(self, catalogue: Catalogue, config: ReportConfig, memory: Memory | None = None) -> None:
        self.memory = Memory() if memory is None else memory
        self.memory.forget_others(catalogue.files)
        self.contents = PageContents(catalogue, known=self.memory.files, keeps_curves=memory is None)
        self.config = config
        self.made = minute_now()

    def value(self, name: str, *of: Any) -> Value:
        """A value by its name.

        Raises:
            LookupError: there is none of that name.
            OfflineError: it cannot be read, or a condition cannot be understood.
        """
        if name in ROW_LISTS and not of:
            return rows_of(getattr(self, name))
        if name in LISTS and not of:
            return getattr(self, name)
        return _READ[name](self, *of)

    # Lists: a row each, by name

    @functools.cached_property
    def datasets(self) -> dict[str, dict[str, Any]]:
        return datasets_of(self.contents)

    @functools.cached_property
    def runs(self) -> dict[str, dict[str, Any]]:
        return runs_of(self.contents)

    @functools.cached_property
    def policies(self) -> dict[str, dict[str, Any]]:
        return policies_of(self.contents)

    @functools.cached_property
    def decisions(self) -> list[dict[str, Any]]:
        return decisions_of(self.contents)

    @functools.cached_property
    def registry(self) -> list[dict[str, Any]]:
        return registry_of(self.contents)

    @functools.cached_property
    def graph(self) -> dict[str, Any]:
        return graph_of(self.contents)

    @functools.cached_property
    def overview(self) -> dict[str, Any]:
        datasets, runs, policies = (self.datasets, self.runs, self.policies)
        unfinished = [name for name, run in runs.items() if run["status"] == "not finished"]
        failed = [name for name, run in runs.items() if run["status"] == "failed"]
        others = (name for name, run in runs.items() if run["status"] != "failed")
        best = sorted(others, key=lambda name: (runs[name]["return"] is None, -(runs[name]["return"] or 0)))[:BEST]
        moves = {move["name"]: move for move in reversed(self.registry)}
        return {
            "root": self.contents.root.uri,
            "runs_url": _without_credentials(self.config.runs_url.rstrip("/")),
            "counts": {
                "datasets": len(datasets),
                "experiments": len(runs),
                "policies": len(policies),
                "decisions": len(self.decisions),
                "moves": len(self.registry),
            },
            "problems": sorted({*self.contents.problems}),
            "bad": [[name, row["failed"]] for name, row in datasets.items() if row["verdict"] == "fail"][:MOST_ON_OVERVIEW],
            "unfinished": len(unfinished),
            "failures": len(failed),
            "going_on": {name: runs[name] for name in unfinished[:UNFINISHED]},
            "failed": {name: runs[name] for name in failed[:UNFINISHED]},
            "aliases": [*moves.values()][::-1][:MOST_ON_OVERVIEW],
            "decisions": self.decisions[:MOST_ON_OVERVIEW],
            "datasets": dict([*datasets.items()][:MOST_ON_OVERVIEW]),
            "best": {name: runs[name] for name in best},
        }

    # Single things

    def dataset(self, name: str) -> dict[str, Any]:
        return dataset_in(self.contents, self._latest(name)[0])

    def episodes(self, name: str) -> dict[str, Any]:
        folder, dataset = self._latest(name)
        return episodes_of(
            dataset,
            self.memory.index(dataset)[0],
            self.config,
            scores=scores_of(self.contents, dataset),
            filmed=[*clips_of(self.contents, folder, dataset)],
            marks=read_marks(dataset.location),
        )

    def matching(self, name: str, what: str, condition: str) -> dict[str, Any]:
        _, dataset = self._latest(name)
        marks = read_marks(dataset.location)
        return matching(dataset, *self.memory.index(dataset), condition, of_steps=what == "steps", marks=marks)

    def episode(self, name: str, number: int) -> dict[str, Any]:
        folder, dataset = self._latest(name)
        index, groups = self.memory.index(dataset)
        signals = signals_of(read_episode(groups, _checked(number, index)), dataset.manifest.input_columns).as_json()
        clip = clips_of(self.contents, folder, dataset).get(index[columns.EPS_ID][number])
        film = {} if clip is None else {"clip": clip_of(self.contents, clip)}
        return {**signals, **facts_of(index, number), **film}

    def beside(self, name: str, number: int, policy: str) -> dict[str, Any]:
        _, dataset = self._latest(name)
        folder = "" if policy == "." else policy
        if folder not in self.contents.policies:
            raise LookupError(f"There is no policy {policy}.")
        index, groups = self.memory.index(dataset)
        return actions_beside(
            dataset, read_episode(groups, _checked(number, index)), self.contents.catalogue.location(folder).uri
        )

    def curves(self, name: str) -> dict[str, Any]:
        if (curves := curves_in(self.contents, name)) is None:
            raise LookupError(f"There is no experiment {name}.")
        return curves

    def policy(self, name: str) -> dict[str, Any]:
        return policy_in(self.contents, "" if name == "." else name)

    def episode_name(self, name: str, number: int) -> tuple[Location, EpisodeName]:
        """The place of a dataset, and what names an episode in all its versions."""
        _, dataset = self._latest(name)
        index, _ = self.memory.index(dataset)
        row = index.row(_checked(number, index), named=True)
        return dataset.location, EpisodeName(row[columns.EPS_ID], row[columns.T_STARTED])

    def _latest(self, name: str) -> tuple[str, Dataset]:
        """The folder and the newest version of a dataset."""
        folder = "" if name == "." else name
        return folder, self.contents.datasets[folder][-1]

    # All together

    def for_file(self) -> dict[str, Any]:
        """All values that one file holds, by the parts of their names: of episodes those that are chosen."""
        names, runs = [*self.datasets], self.runs
        points = max(LEAST_POINTS, min(MOST_POINTS // 5, POINTS // max(1, 2 * len(runs))))
        tried = self.contents.tried
        values: dict[str, Any] = {name: self.value(name) for name in (*ROW_LISTS, *LISTS) if name != "overview"}
        values["dataset"] = {name: self.dataset(name) for name in names}
        values["episodes"] = {name: tried(self._told(name), functools.partial(self.episodes, name)) for name in names}
        values["episode"] = {
            name: tried(self._told(name), functools.partial(self._chosen, name, values["episodes"][name], len(names))) or {}
            for name in names
        }
        curved = self.contents.each(
            [name for name, run in runs.items() if run["points"]],
            lambda name: curves_in(self.contents, name, points),
        )
        values["curves"] = dict(curved)
        values["policy"] = {name: self.policy(name) for name in self.policies}
        return {"overview": self.overview, **values}  # last, for it tells what could not be read

    def _told(self, name: str) -> str:
        folder, dataset = self._latest(name)
        return f"{folder} version {dataset.manifest.version}"

    def _chosen(self, name: str, episodes: Mapping[str, Any] | None, datasets: int) -> dict[int, Any]:
        """The steps of the chosen episodes of a dataset, by their numbers, and their clips."""
        if episodes is None:
            return {}
        folder, dataset = self._latest(name)
        index, groups = self.memory.index(dataset)
        shown = dict(steps_of(dataset, index, groups, [*episodes["chosen"]], MAX_NUMBERS // max(1, datasets)))
        clips = clips_of(self.contents, folder, dataset)
        for number, id in zip(episodes["number"], episodes["id"], strict=True):
            if id in clips:
                shown[number] = {**shown.get(number, facts_of(index, number)), "clip": clip_of(self.contents, clips[id])}
        return shown


ROW_LISTS = ("datasets", "runs", "policies")
"""Values that are a row each of what there is, by name."""
LISTS = ("overview", "decisions", "registry", "graph")
"""Other values that are of the whole root."""
_READ: Mapping[str, Callable[..., Value]] = {
    "dataset": Site.dataset,
    "episodes": Site.episodes,
    "matching": Site.matching,
    "episode": Site.episode,
    "beside": Site.beside,
    "curves": Site.curves,
    "policy": Site.policy,
}
"""Those of one thing."""


def _checked(number: int, index: pl.DataFrame) -> int:
    if not 0 <= number < len(index):
        raise LookupError(f"There is no episode {number}; there are {len(index):,}.")
    return number


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
