"""Old versions go, what is needed stays; a subject's episodes are found in everything that was made from them, and nothing of
them is left."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import offline_core as offline
from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, DatasetNotFoundError, VersionNotFoundError
from offline_core.keeping.retention import forget as forgetting
from offline_core.policies.lineage import lineage

SUBJECTS = ("p-17-adams", "p-18-baker", "p-19-clark")
RARE = 1234.5678
"""A value that only the first subject's steps have."""


def _logs(folder: Path, seed: int = 0, days: int = 1) -> Path:
    """A table of steps; each subject has two episodes a day."""
    rng = np.random.default_rng(seed)
    frames = [
        pl.DataFrame(
            {
                "eps_id": f"{subject}-day{seed}-{number}",
                "t": range(8),
                "x": np.full(8, RARE) if subject == SUBJECTS[0] else rng.normal(size=8),
                "y": rng.normal(size=8),
                "actions": rng.integers(2, size=8),
                "rewards": rng.normal(size=8),
                "terminateds": [False] * 7 + [True],
                "subject": subject,
            }
        )
        for subject in SUBJECTS
        for number in range(2)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    pl.concat(frames).write_parquet(folder / f"day{seed}.parquet")
    return folder


IMPORT: dict[str, Any] = {"mapping": {"obs": ["x", "y"]}, "episodes": {"last_new_obs": "repeat"}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two versions of imported logs, and what is made from them: both formats, pruned, split, merged, a policy."""
    runs = tmp_path / "runs"
    for day in range(2):
        data = offline.import_data(_logs(tmp_path / "logs", day), output=runs / "data", **IMPORT)
    table = offline.convert(data, output=runs / "table", format="table")
    good = offline.prune(table, "return > -1000", output=runs / "good")
    train, held_out = offline.split(data, output=runs / "split", held_out_fraction=0.5, by="subject")
    offline.merge([train, held_out], output=runs / "merged")
    offline.train(good, algorithm="bc", output=runs / "policy", optimizer={"max_epochs": 1}, evaluation={"play": False})
    (runs / "notes.md").write_text(f"Look at {SUBJECTS[0]}-day0-1 again.\n")
    (runs / "data" / "cut-000000-0123456789ab.parquet").write_bytes(b"PAR1, and no more")
    return runs


def _everything(root: Path) -> bytes:
    """All bytes below a folder, and all values of its Parquet files, which may be compressed."""
    found = b""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            found += path.read_bytes()
            if path.suffix == ".parquet" and not path.name.startswith("cut"):
                found += repr(pq.read_table(path).to_pydict()).encode()
    return found


def test_nothing_of_a_forgotten_subject_is_left(root: Path) -> None:
    kept_before = _episodes(root, SUBJECTS[1:])
    assert SUBJECTS[0].encode() in _everything(root) and b"1234.5" in _everything(root)
    where = f"subject = '{SUBJECTS[0]}'"
    would = offline.forget(root, where)
    assert not would.deleted and would.ids == 4 and SUBJECTS[0].encode() in _everything(root)
    done = offline.forget(root, where, delete=True)
    assert done.model_copy(update={"deleted": False}) == would
    assert {Path(each.uri).name for each in done.versions} >= {"data", "table", "good", "merged"}
    assert [Path(uri).name for uri in done.left] == ["notes.md", "cut-000000-0123456789ab.parquet"], (
        "what others wrote is left to them"
    )
    (root / "notes.md").unlink()
    everything = _everything(root)
    assert SUBJECTS[0].encode() not in everything
    assert b"1234.5" not in everything and np.float64(RARE).tobytes()[:6] not in everything
    assert done.policies == [str(root / "policy" / name) for name in ("best", "last")]
    assert _episodes(root, SUBJECTS[1:]) == kept_before, "no other episode is changed"
    assert not [each.wrong for each in offline.verify(root) if each.wrong]
    first = open_dataset(str(root / "data"), 1).manifest
    assert first.forgotten[0].episodes == 2 and first.statistics.episodes == 4 and first.forgotten[0].steps == 16
    states = {node.state for node in lineage(str(root / "policy" / "best")).nodes}
    assert states == {"found", "imported"}, "what was made from a version still finds it"
    assert offline.forget(root, where.replace("subject", "eps_id"), delete=True).ids == 0


def _episodes(root: Path, subjects: tuple[str, ...]) -> dict[str, list[tuple[str, bytes]]]:
    """By version, the ids and bytes of the episodes of these subjects."""
    names = [path.parent.parent for path in root.rglob("_versions/0*.json")]
    return {
        f"{name} {number}": [
            (episode.eps_id, episode.observations.tobytes() + episode.actions.tobytes() + episode.rewards.tobytes())
            for episode in offline.open_dataset(str(name), number).episodes()
            if episode.eps_id.startswith(subjects)
        ]
        for name in sorted(set(names))
        for number in versions(str(name))
    }


def test_a_killed_forgetting_is_finished_by_the_next(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, delete = f"subject = '{SUBJECTS[0]}'", Location.delete

    def killed(self: Location) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Location, "delete", killed)
    with pytest.raises(KeyboardInterrupt):
        offline.forget(root, where, delete=True)
    assert SUBJECTS[0].encode() in _everything(root)
    monkeypatch.setattr(Location, "delete", delete)
    offline.forget(root, where, delete=True)
    (root / "notes.md").unlink()
    assert SUBJECTS[0].encode() not in _everything(root)


def test_equal_ids_of_merged_strangers_are_told_apart(tmp_path: Path) -> None:
    """In a merged dataset an episode is meant by its content; an id alone does not reach a dataset that shares no parent."""
    runs = tmp_path / "runs"
    mine = offline.import_data(_logs(tmp_path / "a", 0), output=runs / "mine", **IMPORT)
    offline.import_data(_logs(tmp_path / "b", 1), output=runs / "other", **IMPORT)
    frame = pl.read_parquet(tmp_path / "a" / "day0.parquet").with_columns(pl.col("x") * 2).drop("subject")
    (tmp_path / "c").mkdir()
    frame.write_parquet(tmp_path / "c" / "day0.parquet")
    stranger = offline.import_data(tmp_path / "c", output=runs / "stranger", **IMPORT)
    offline.forget(runs, f"subject = '{SUBJECTS[0]}'", delete=True)
    assert open_dataset(stranger.location.uri).manifest.statistics.episodes == 6
    assert open_dataset(mine.location.uri).manifest.statistics.episodes == 4


def test_what_cannot_be_forgotten_is_refused(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"No dataset below .* has person. A condition may name eps_id"):
        offline.forget(root, "person = 1")
    with pytest.raises(ConfigError, match=r"cannot be understood|not allowed"):
        offline.forget(root, "subject ==== 1")
    with pytest.raises(DatasetNotFoundError, match="no dataset at or below"):
        offline.forget(root / "policy", "eps_id = 'x'")


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """Five versions, of which the first is tagged, the second has a child, and all are of last year."""
    runs = tmp_path / "runs"
    for day in range(5):
        data = offline.import_data(_logs(tmp_path / "logs", day), output=runs / "data", **IMPORT)
        if day == 1:
            offline.prune(data, "return > -1000", output=runs / "good")
    offline.tag(runs / "data", "audited", version=1)
    a_year_ago = f"{datetime.now(UTC) - timedelta(days=365):%Y-%m-%d}"
    for path in runs.rglob("_versions/0*.json"):
        text = without_checksum(path.read_bytes(), str(path)).decode()
        path.write_bytes(with_checksum(re.sub(r'("created_at": ")[^"T]*', rf"\g<1>{a_year_ago}", text)))
    return runs


def test_old_versions_go_and_what_is_needed_stays(grown: Path) -> None:
    (grown / "data" / "left-000000-0123456789ab.parquet").write_bytes(b"of a killed writer")
    (grown / "data" / "new-000000-0123456789ab.parquet").write_bytes(b"of a writer at work")
    old = time.time() - timedelta(days=8).total_seconds()
    os.utime(grown / "data" / "left-000000-0123456789ab.parquet", (old, old))
    before = sorted(grown.rglob("*"))
    would = offline.vacuum(grown, keep_versions=2)
    assert not would.deleted and sorted(grown.rglob("*")) == before
    done = offline.vacuum(grown, keep_versions=2, delete=True)
    assert [each.version for each in done.removed if each.uri.endswith("data")] == [3]
    reasons = {(Path(each.uri).name, each.version): each.reason for each in done.kept}
    assert reasons["data", 1] == "tagged audited" and reasons["data", 5] == "the latest version"
    assert reasons["data", 2].endswith("good version 1 was made from it")
    assert versions(str(grown / "data")) == [1, 2, 4, 5]
    assert [Path(uri).name for uri in done.leftovers] == ["left-000000-0123456789ab.parquet"]
    assert (
        not (grown / "data" / "left-000000-0123456789ab.parquet").exists()
        and (grown / "data" / "new-000000-0123456789ab.parquet").exists()
    )
    for number in (1, 2, 4, 5):
        assert len([*offline.open_dataset(str(grown / "data"), number).episodes()]) == 6 * number
    with pytest.raises(VersionNotFoundError, match=r"no version 3; it has \[1, 2, 4, 5\]"):
        open_dataset(str(grown / "data"), 3)
    again = offline.vacuum(grown, keep_versions=1, keep_needed=False, delete=True)
    assert [each.version for each in again.removed if each.uri.endswith("data")] == [2, 4]


def test_young_versions_stay(grown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not offline.vacuum(grown, keep_versions=1, older_than_days=400).removed


def test_a_version_is_read_by_its_tag(grown: Path) -> None:
    uri = str(grown / "data")
    assert offline.open_dataset(f"{uri}@audited").manifest.version == 1
    assert offline.open_dataset(f"{uri}@4").manifest.version == 4
    offline.tag(uri, "audited")
    assert offline.open_dataset(f"{uri}@audited").manifest.version == 5
    pruned = offline.prune(f"{uri}@2", "return > -999", output=grown / "second")
    assert pruned.manifest.parents[0].version == 2
    with pytest.raises(VersionNotFoundError, match="has no tag 'nightly'; it has audited"):
        offline.open_dataset(f"{uri}@nightly")
    with pytest.raises(VersionNotFoundError, match="no version 9"):
        offline.tag(uri, "audited", version=9)
    with pytest.raises(ConfigError, match="is no tag"):
        offline.tag(uri, "../x")
    offline.tag(uri, "audited", remove=True)
    with pytest.raises(VersionNotFoundError, match="it has none"):
        offline.open_dataset(f"{uri}@audited")


def test_versions_that_share_files_lose_none(tmp_path: Path) -> None:
    """As appended ones do: the files of a version that goes stay while a later one lists them."""
    data = offline.import_data(_logs(tmp_path / "logs", 0), output=tmp_path / "runs" / "data", **IMPORT)
    manifest = data.manifest.model_copy(update={"version": 2, "report": {"more": 1}})
    file = Location.of(f"{data.location.uri}/_versions/000002.json")
    file.write(with_checksum(manifest.to_json()))
    done = offline.vacuum(tmp_path / "runs", keep_versions=1, older_than_days=0, delete=True)
    assert [each.version for each in done.removed] == [1] and done.freed_bytes == 0
    assert len([*offline.open_dataset(data.location.uri).episodes()]) == 6


def test_names_are_found_as_json_and_html_write_them() -> None:
    from offline_core.keeping.retention.texts import Names

    names = Names.of({"O'Neil & <sons>"}, "subject = 'Zoë''s'")
    for text in (b"O&#x27;Neil &amp; &lt;sons&gt;", b"O'Neil & <sons>", b"Zo\\u00eb's", "Zoë's".encode()):
        assert text in names and names.removed(text) == b"(forgotten)"
    assert Names.of({"17"}, "t = 1").names == (), "so short a name is in any text"


def test_forget_has_no_flow() -> None:
    """Prefect would store the condition, which may name a person."""
    from offline_core.runtime.stage import STAGES

    assert not any("forget" in name for name in STAGES) and callable(forgetting.forget)


def test_appends_share_files_and_keep_rows_that_wait(tmp_path: Path) -> None:
    """A vacuum leaves what the latest version needs; forget also takes rows that wait for others."""
    logs, runs = tmp_path / "logs", tmp_path / "runs"
    declared = IMPORT | {"append": True, "episodes": {"last_new_obs": "drop"}, "files": {"max_rows_per_file": 2}}
    whole = pl.read_parquet(_logs(tmp_path / "source") / "day0.parquet")
    logs.mkdir()
    whole.filter(pl.col("t") < 5).write_parquet(logs / "0.parquet")  # the last step of each waits for its next observation
    offline.import_data(logs, output=runs / "data", **declared)
    whole.filter(pl.col("t") >= 5, pl.col("subject") == SUBJECTS[2]).write_parquet(logs / "1.parquet")
    offline.import_data(logs, output=runs / "data", **declared)
    shared = {file.path for file in open_dataset(f"{runs}/data", 1).manifest.files}
    assert shared & {file.path for file in open_dataset(f"{runs}/data").manifest.files}
    offline.vacuum(runs, keep_versions=1, older_than_days=0, leftovers_older_than_days=0, delete=True)
    assert versions(f"{runs}/data") == [2]
    assert all(not found.wrong for found in offline.verify(runs))
    result = offline.forget(runs, where=f"starts_with(eps_id, '{SUBJECTS[0]}')", delete=True)
    assert result.ids == 2 and result.left == []
    assert all(not found.wrong for found in offline.verify(runs))
    manifest = open_dataset(f"{runs}/data").manifest
    late = [pq.read_table(runs / "data" / file.path) for file in manifest.all_files if file not in manifest.files]
    ids = {name for table in late for name in table["eps_id"].to_pylist()}
    assert ids and not any(name.startswith(SUBJECTS[0]) for name in ids)
    assert RARE not in {x for table in late if "obs" in table.column_names for obs in table["obs"].to_pylist() for x in obs}
    assert {file.name for file in (runs / "data/_late").iterdir()} == {
        file.path[6:] for file in manifest.all_files if "_late" in file.path
    }
    whole.filter(pl.col("t") >= 5, pl.col("subject") == SUBJECTS[1]).write_parquet(logs / "2.parquet")
    offline.import_data(logs, output=runs / "data", **declared)
    lengths = {row["eps_id"]: row["length"] for row in offline.open_dataset(runs / "data").table().iter_rows(named=True)}
    assert sorted(lengths.values()) == [8] * 4


def _days(folder: Path, ids: dict[str, str], steps: range = range(4), **more: object) -> Path:
    """A table of steps of episodes, by id the subject."""
    folder.mkdir(parents=True, exist_ok=True)
    frame = pl.DataFrame({"eps_id": [*ids], "subject": [*ids.values()]}).join(pl.DataFrame({"t": [*steps]}), how="cross")
    values = {"x": pl.int_range(pl.len()).cast(float), "y": pl.lit(1.0), "actions": pl.lit(0), "rewards": pl.lit(1.0)}
    frame = frame.with_columns(**values, **{name: pl.lit(value) for name, value in more.items()})
    frame.with_columns(terminateds=pl.col("t") == 3).write_parquet(folder / f"{steps.start}.parquet")
    return folder


@pytest.mark.parametrize("id", ["1217", "room@13", "4"])
def test_ids_that_look_like_numbers_or_parts_mean_themselves_alone(tmp_path: Path, id: str) -> None:
    runs, ids = tmp_path / "runs", {id: "p-171", "room@12": "p-170", "12": "p-172"}
    data = offline.import_data(_days(tmp_path / "logs", ids), output=runs / "data", **IMPORT)
    offline.prune(data, "return > 0", output=runs / "good")
    assert offline.forget(runs, "subject = 'p-171'", delete=True).ids == 1
    for name in ("data", "good"):
        assert {episode.eps_id for episode in offline.open_dataset(str(runs / name)).episodes()} == {"room@12", "12"}


def test_rows_that_wait_for_late_ones_are_forgotten_too(tmp_path: Path) -> None:
    logs, dropping = tmp_path / "logs", IMPORT | {"episodes": {"last_new_obs": "repeat", "incomplete": "drop"}, "append": True}
    _days(logs, {"e-001": "p-170"})
    _days(logs, {"e-002": "p-171"}, range(2, 4))
    offline.import_data(logs, output=tmp_path / "runs" / "data", **dropping)
    assert offline.forget(tmp_path / "runs", "subject = 'p-171'", delete=True).ids == 1
    assert b"p-171" not in _everything(tmp_path / "runs")


def test_words_that_programs_go_by_are_left_and_listed(tmp_path: Path) -> None:
    """A category, and a raw log below the root: replaced, a policy would not know its inputs and a log would be another."""
    logs = _days(tmp_path / "runs" / "logs", {"e-001": "p-170", "e-002": "p-171"}, mode="heat")
    pl.read_parquet(logs / "0.parquet").write_csv(logs / "0.csv")
    columns = {"encode": {"mode": ["heat", "cool"]}}
    data = offline.import_data(
        logs / "0.csv", output=tmp_path / "runs" / "data", **{**IMPORT, "mapping": {"obs": ["x", "mode"]}, "columns": columns}
    )
    before = (logs / "0.csv").read_bytes()
    done = offline.forget(tmp_path / "runs", "subject = 'p-171' and 'heat' = 'heat'", delete=True)
    assert (logs / "0.csv").read_bytes() == before
    assert open_dataset(data.location.uri).manifest.input_columns == data.manifest.input_columns
    assert {Path(uri).name for uri in done.left} == {"0.csv", "0.parquet", "000001.json"}
