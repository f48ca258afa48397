"""Forget: after it no byte below the root has a value of the subject, and all else is as it was."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import offline_core as offline
from offline_core.data.curation.config import MergeConfig, PruningConfig, SplitConfig
from offline_core.data.curation.converting import convert
from offline_core.data.curation.merge import merge
from offline_core.data.curation.prune import prune
from offline_core.data.curation.split import split
from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.dataset import VERSIONS, Dataset, open_dataset, versions
from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.datasets.marks import EpisodeName, mark_episode
from offline_core.data.datasets.verify import verify
from offline_core.data.episodes import Episode, decode
from offline_core.data.formats.exporting import ExportConfig, export
from offline_core.data.importing.config import ConversionConfig
from offline_core.data.quality.check import check
from offline_core.data.quality.config import QualityConfig
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, StorageError
from offline_core.keeping.retention.config import ForgetConfig
from offline_core.keeping.retention.forget import ForgetResult, forget
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.lineage import label, lineage
from offline_core.policies.policy import Policy
from tests.data.datasets.factories import ACTIONS, OBSERVATIONS, episode, write_dataset

WHERE = "subject = 'patient-17'"
RARE = 7654.328125
"""Exact in float32: the largest number of all, so statistics and footers have it."""
TEXTS = ("patient-17", "Ada Lovelace", str(RARE), "visit-of-p17")
BYTES = (*(text.encode() for text in TEXTS), struct.pack("<f", RARE), struct.pack("<d", RARE))


def of_subject(number: int) -> Episode:
    made = episode(number)
    made.observations[0, 0] = RARE
    extras = {**made.extras, "subject": np.array(["patient-17"] * 7), "dose": np.full(7, RARE)}
    infos = [{"note": "seen by Ada Lovelace"}] * 8
    return episode(number, eps_id=f"visit-of-p17-{number}", observations=made.observations, extras=extras, infos=infos)


def of_another(number: int) -> Episode:
    extras = {"subject": np.array([f"person-{number}"] * 7), "dose": np.full(7, 0.5)}
    return episode(number, extras=episode(number).extras | extras, infos=[{"note": "nothing"}] * 8)


def data_at(folder: Path, count: int = 12) -> str:
    """Every third episode is the subject's; three files of four episodes each."""
    episodes = [of_another(number) if number % 3 else of_subject(number) for number in range(count)]
    write = write_dataset(folder / "data", episodes, "episodes", batch=4, max_rows_per_file=4)
    assert len(write.manifest.files) == count // 4
    return f"{folder}/data"


def contents(root: Path) -> Iterator[tuple[str, bytes]]:
    """Every file as it is, unpacked, and as what its values say."""
    for path in root.rglob("*"):
        if not path.is_file():
            continue
        data = path.read_bytes()
        yield f"{path} as bytes", data
        if path.suffix == ".gz":
            yield f"{path} unpacked", gzip.decompress(data)
        if path.suffix == ".parquet":
            file = pq.ParquetFile(path)
            yield f"{path} footer", repr([file.metadata.row_group(0).column(i).statistics for i in range(3)]).encode()
            for row in file.read().to_pylist():
                item = row.pop("item", None)
                yield f"{path} row", repr(row).encode()
                if item is not None:
                    yield f"{path} item", item + repr(vars_of(decode(item))).encode()


def vars_of(found: Episode) -> dict[str, Any]:
    return {name: getattr(found, name) for name in ("eps_id", "observations", "rewards", "infos", "extras", "custom_data")}


def holding(root: Path) -> list[str]:
    return [name for name, data in contents(root) if any(text in data for text in BYTES)]


def policy_of(data: Dataset, folder: Path) -> str:
    network = NetworkConfig(hidden_sizes=[4])
    policy = Policy(OBSERVATIONS, ACTIONS, network, value_function=False)
    save_policy(policy, f"{folder}/best", operation=Operation(name="train"), parents=[data.parent_entry])
    return f"{folder}/best"


def world(folder: Path) -> dict[str, str]:
    data = data_at(folder)
    made = {name: f"{folder}/{name}" for name in ("pruned", "named", "split", "merged", "table", "narrow", "export")}
    prune(PruningConfig(where="return > -1000"), dataset=data, output=made["pruned"])
    prune(PruningConfig(where="eps_id <> 'visit-of-p17-3'"), dataset=data, output=made["named"])
    split(SplitConfig(), dataset=data, output=made["split"])
    merge(MergeConfig(), datasets=[f"{made['split']}/train", f"{made['split']}/held_out"], output=made["merged"])
    convert(ConversionConfig(format="table"), dataset=made["merged"], output=made["table"])
    prune(PruningConfig(columns=["action_logp"]), dataset=made["table"], output=made["narrow"])  # without subject
    export(ExportConfig(format="sample_batch"), dataset=data, output=made["export"])
    for uri in (data, made["table"]):
        check(QualityConfig(), dataset=uri)
    Location.of(data).child("_cards/000001.md").write(b"the best: visit-of-p17-0")
    mark_episode(Location.of(data), EpisodeName("visit-of-p17-0", 0), is_bad=True)
    return {"data": data, **made}


def episodes_at(uri: str) -> list[str]:
    return sorted(each.eps_id for each in offline.open_dataset(uri).episodes())


def test_no_byte_below_the_root_has_a_value_of_the_subject(tmp_path: Path) -> None:
    made = world(tmp_path)
    policy = policy_of(open_dataset(made["pruned"]), tmp_path / "policy")
    other = policy_of(write_dataset(tmp_path / "others", [of_another(1)], "episodes"), tmp_path / "other")
    assert len(holding(tmp_path)) > 30
    before = {name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() for name in [str(path)]}

    listed = forget(ForgetConfig(where=WHERE), root=str(tmp_path))
    assert {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    done = forget(ForgetConfig(where=WHERE, delete=True), root=str(tmp_path))
    assert done.model_copy(update={"deleted": False}) == listed

    assert holding(tmp_path) == [] and done.left == []
    assert done.policies == [policy] and other not in str(done.policies)
    assert not any(each.wrong for each in verify(str(tmp_path)))
    others = sorted(f"episode-{number:04}" for number in range(12) if number % 3)
    for name in ("data", "pruned", "named", "merged", "table", "narrow"):
        assert episodes_at(made[name]) == others
    manifest = open_dataset(made["table"]).manifest
    fresh = convert(ConversionConfig(format="table"), dataset=made["merged"], output=f"{tmp_path}/again")
    assert manifest.statistics == open_dataset(fresh.dataset.uri).manifest.statistics
    again = forget(ForgetConfig(where=WHERE, delete=True), root=str(tmp_path))
    assert (again.versions, again.removed, again.left) == ([], [], [])


def test_the_lineage_says_what_was_forgotten(tmp_path: Path) -> None:
    made = world(tmp_path)
    forget(ForgetConfig(where=WHERE, delete=True), root=str(tmp_path))
    nodes = lineage(made["narrow"]).nodes
    assert {node.state for node in nodes} == {"found"}
    assert {node.forgotten_episodes for node in nodes if node.uri in (made["data"], made["merged"], made["narrow"])} == {4}
    assert "4 episodes forgotten" in label(nodes[0])
    tombstone = open_dataset(made["data"]).manifest.forgotten[0].model_dump()
    assert set(tombstone) == {"at", "episodes", "steps", "fingerprint", "files"} and tombstone["steps"] == 28


def test_files_without_the_subject_are_not_written_again(tmp_path: Path) -> None:
    data = data_at(tmp_path)
    before = open_dataset(data).manifest
    found = forget(ForgetConfig(where="eps_id = 'episode-0001'", delete=True), root=data)
    after = open_dataset(data).manifest
    assert [each.episodes for each in found.versions] == [1]
    assert after.files[1:] == before.files[1:] and after.files[0] != before.files[0]
    assert not (tmp_path / "data" / before.files[0].path).exists()
    assert after.statistics.episodes == 11


def test_versions_that_share_files_are_all_cleaned(tmp_path: Path) -> None:
    data = data_at(tmp_path)
    first = open_dataset(data)
    statistics = first.manifest.statistics
    commit(
        data,
        first.manifest.files,
        format="episodes",
        operation=Operation(name="append"),
        statistics=statistics,
        parents=[Parent(kind="dataset", uri=data, version=1, fingerprint=first.manifest.fingerprint)],
    )
    forget(ForgetConfig(where=WHERE, delete=True), root=data)
    assert versions(data) == [1, 2] and holding(tmp_path) == []
    assert [open_dataset(data, number).manifest.statistics.episodes for number in (1, 2)] == [8, 8]
    assert not any(each.wrong for each in verify(data))


def test_a_version_of_which_nothing_is_left_can_be_run_again(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", [of_subject(0), of_another(1)], "episodes", batch=1, max_rows_per_file=1)
    prune(PruningConfig(where="eps_id = 'visit-of-p17-0'"), dataset=f"{tmp_path}/data", output=f"{tmp_path}/own")
    forget(ForgetConfig(where=WHERE, delete=True), root=str(tmp_path))
    assert holding(tmp_path) == [] and open_dataset(f"{tmp_path}/own").manifest.files == []
    assert forget(ForgetConfig(where=WHERE, delete=True), root=str(tmp_path)).versions == []


def test_files_of_other_programs_are_left_and_listed(tmp_path: Path) -> None:
    data_at(tmp_path)
    (tmp_path / "raw").mkdir()
    with gzip.open(tmp_path / "raw/day.csv.gz", "wt") as file:
        file.write("subject,dose\npatient-17,1\n")
    pl.DataFrame({"subject": ["patient-17", "x"], "dose": [1, 2]}).write_parquet(tmp_path / "raw/day.parquet")
    (tmp_path / "raw/others.csv").write_text("subject,dose\npatient-170,1\n")
    found = forget(ForgetConfig(where=WHERE, delete=True), root=str(tmp_path))
    assert found.left == [f"{tmp_path}/raw/day.csv.gz", f"{tmp_path}/raw/day.parquet"] and found.texts == []
    assert "patient-170" in (tmp_path / "raw/others.csv").read_text()


def test_a_damaged_file_of_another_program_does_not_end_it(tmp_path: Path) -> None:
    data_at(tmp_path)
    (tmp_path / "raw").mkdir()
    pl.DataFrame({"a": [f"x{i % 7}" for i in range(10_000)]}).write_parquet(tmp_path / "raw/day.parquet", compression="snappy")
    stored = bytearray((tmp_path / "raw/day.parquet").read_bytes())
    stored[30:200] = bytes(each ^ 0x5A for each in stored[30:200])
    (tmp_path / "raw/day.parquet").write_bytes(stored)
    with pytest.raises(OSError, match="Corrupt"):  # and no error of Arrow's
        pq.read_table(tmp_path / "raw/day.parquet")
    assert forget(ForgetConfig(where=WHERE, delete=True), root=str(tmp_path)).left == []


def test_an_old_result_is_not_reused(tmp_path: Path) -> None:
    data = data_at(tmp_path)
    config = PruningConfig(where="return > -1000")
    prune(config, dataset=data, output=f"{tmp_path}/pruned")
    forget(ForgetConfig(where="eps_id = 'episode-0001'", delete=True), root=data)  # not of what was made from it
    again = prune(config, dataset=data, output=f"{tmp_path}/pruned")
    assert not again.reused and again.dataset.episodes == 11


@pytest.mark.parametrize("where", ["subject =", "nobody = 'x'"])
def test_wrong_conditions_are_refused(tmp_path: Path, where: str) -> None:
    data = data_at(tmp_path)
    with pytest.raises(ConfigError):
        forget(ForgetConfig(where=where, delete=True), root=data)


def test_a_kill_at_any_write_or_deletion_is_finished_by_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_at(tmp_path)
    prune(PruningConfig(), dataset=data, output=f"{tmp_path}/copy")
    convert(ConversionConfig(format="table"), dataset=f"{tmp_path}/copy", output=f"{tmp_path}/table")
    prune(PruningConfig(columns=["action_logp"]), dataset=f"{tmp_path}/table", output=f"{tmp_path}/narrow")
    runs, real = 0, {name: getattr(Location, name) for name in ("write", "delete")}
    while True:
        runs += 1
        left = 2  # so many writes and deletions, then the run dies; the next one goes on
        assert runs < 40

        def dying(name: str) -> Any:
            def act(self: Location, *data: bytes) -> None:
                nonlocal left
                if left == 0:
                    raise StorageError("killed")
                left -= 1
                real[name](self, *data)

            return act

        with monkeypatch.context() as patched:
            for name in real:
                patched.setattr(Location, name, dying(name))
            try:
                result: ForgetResult = forget(ForgetConfig(where=WHERE, delete=True), root=str(tmp_path))
            except StorageError:
                assert not any(each.wrong for each in verify(str(tmp_path)))
                continue
        break
    assert runs > 3 and result.left == [] and holding(tmp_path) == []
    for name in ("data", "copy", "table", "narrow"):
        assert len(episodes_at(f"{tmp_path}/{name}")) == 8
    assert json.loads((tmp_path / f"data/{VERSIONS}/000001.json").read_text())["forgotten"][0]["episodes"] == 4
