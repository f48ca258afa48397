"""The history of a name: what is missing, damaged or edited is named, and believed by none."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import offline_core as offline
from offline_core.data.store.json_files import with_checksum
from offline_core.errors import CheckpointError, CorruptFileError, OfflineError
from offline_core.keeping.inspection import registry_card
from tests.keeping.promotion.decisions import policy_at


@pytest.fixture
def hvac(tmp_path: Path) -> Path:
    """Four moves: two policies as champion, a rollback, a challenger."""
    name = tmp_path / "registry" / "hvac"
    for number in (1, 2):
        offline.promote(policy_at(tmp_path / str(number), number), registry=name, override="a test")
    offline.rollback(name)
    offline.promote(policy_at(tmp_path / "3", 3), registry=name, alias="challenger", override="a test")
    return name


def rewritten(file: Path, **fields: object) -> None:
    """As by a program that knows how checksums are made."""
    values = {name: value for name, value in json.loads(file.read_text()).items() if name != "checksum"}
    file.write_bytes(with_checksum(json.dumps(values | fields)))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda history: (history / "000002.json").unlink(), r"000002.json is missing: the log has had 4 entries"),
    "cut": (lambda history: (history / "000002.json").write_text("{"), "checksum is missing or differs"),
    "edited": (
        lambda history: (history / "000002.json").write_text((history / "000002.json").read_text().replace("a test", "b")),
        "damaged, or was edited",
    ),
    "swapped": (lambda history: shutil.copy(history / "000001.json", history / "000002.json"), "is a copy of entry 1"),
    "rewritten": (
        lambda history: rewritten(history / "000002.json", reason="it was asked for"),
        r"000003.json does not follow from \S*000002.json: one of the two was edited",
    ),
    "previous": (lambda history: rewritten(history / "000004.json", previous="x"), "does not follow from the moves before"),
    "elsewhere": (
        lambda history: rewritten(history / "000004.json", checkpoint="../../1"),
        "is no move of an alias that can be read: checkpoint",
    ),
    "newer": (lambda history: rewritten(history / "000004.json", registry_version=2), "written by a newer version"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_named(hvac: Path, kind: str) -> None:
    damage, message = DAMAGE[kind]
    damage(hvac / "history")
    for call in (
        lambda: offline.read_registry(hvac),
        lambda: offline.rollback(hvac),
        lambda: offline.promote("x", registry=hvac, override="a test"),
    ):
        with pytest.raises(CorruptFileError, match=message):
            call()


def test_a_rollback_leads_where_the_history_says(hvac: Path) -> None:
    for name in ("000004.json", "last-000004"):
        (hvac / "history" / name).unlink()
    move = json.loads((hvac / "history" / "000002.json").read_text())
    rewritten(hvac / "history" / "000003.json", checkpoint=move["checkpoint"])
    with pytest.raises(CorruptFileError, match=r"000003\.json does not lead back"):
        offline.rollback(hvac)


def test_moves_of_earlier_versions_are_read_and_moved_on_from(hvac: Path, tmp_path: Path) -> None:
    """They do not hold the hash of the move before, and no mark has the highest number."""
    (hvac / "history" / "last-000004").unlink()
    for file in sorted((hvac / "history").glob("*.json")):
        values = json.loads(file.read_text())
        file.write_bytes(
            with_checksum(json.dumps({name: values[name] for name in values if name not in ("before", "checksum")}))
        )
    assert [move.number for move in offline.read_registry(hvac)[0].moves] == [1, 2, 3, 4]
    offline.promote(policy_at(tmp_path / "4", 4), registry=hvac, override="a test")
    assert [move.number for move in offline.read_registry(hvac)[0].moves] == [1, 2, 3, 4, 5]
    rewritten(hvac / "history" / "000004.json", reason="edited")
    with pytest.raises(CorruptFileError, match=r"000005\.json does not follow from"):
        offline.read_registry(hvac)


def test_what_writers_leave_behind_is_no_move(hvac: Path) -> None:
    for name in (".tmp-0", "000005.md", "5.json", "notes.txt"):
        (hvac / "history" / name).write_text("x")
    assert [move.number for move in offline.read_registry(hvac)[0].moves] == [1, 2, 3, 4]


def test_a_registry_can_be_moved_and_lists_its_names(hvac: Path, tmp_path: Path) -> None:
    offline.promote(str(tmp_path / "1"), registry=hvac.parent / "lights", override="a test")
    (hvac.parent / "unrelated").mkdir()
    moved = shutil.move(hvac.parent, tmp_path / "elsewhere")
    for number in (1, 2, 3):
        shutil.rmtree(tmp_path / str(number))
    found = offline.read_registry(moved)
    assert [(history.name, [*history.aliases]) for history in found] == [
        ("hvac", ["challenger", "champion"]),
        ("lights", ["champion"]),
    ]
    offline.load_policy(f"{moved}/hvac@challenger")
    assert offline.read_registry(tmp_path / "unrelated") == []


def test_a_missing_registry_name_or_alias_is_told_with_those_that_exist(hvac: Path, tmp_path: Path) -> None:
    for address, message in {
        f"{hvac}@canary": r"hvac has the aliases challenger, champion\.$",
        f"{hvac.parent}/lights@champion": r"registry has the names hvac\.$",
        f"{tmp_path}/nowhere/hvac@champion": r"nowhere is no registry. 'offline promote' makes one\.$",
    }.items():
        with pytest.raises(CheckpointError, match=rf"There is no policy at {address}: .*{message}"):
            offline.load_policy(address)


def test_an_alias_whose_copy_was_replaced_is_refused(hvac: Path, tmp_path: Path) -> None:
    [history] = offline.read_registry(hvac)
    policy_at(hvac / history.aliases["champion"].checkpoint, 9)
    with pytest.raises(
        CheckpointError, match=r"is not what was registered: .*roll back by 'offline rollback .* alias=champion"
    ):
        offline.load_policy(f"{hvac}@champion")


def test_an_alias_whose_copy_is_gone_is_told_where_it_is_listed_and_where_it_is_loaded(hvac: Path) -> None:
    [history] = offline.read_registry(hvac)
    copy = hvac / history.aliases["champion"].checkpoint
    assert registry_card(str(hvac)).verdict == "grey"
    shutil.rmtree(copy)
    told = f"{hvac}@champion is not what was registered: {copy} is gone, and move .* Restore the folder from a copy, roll back"
    with pytest.raises(CheckpointError, match=told):
        offline.load_policy(f"{hvac}@champion")
    card = registry_card(str(hvac))
    assert card.verdict == "bad" and re.match(told, str(card.warnings[0]))
    assert f"{copy} (not what was registered)" in card.terminal(verbose=True)


def test_links_that_leave_the_registry_are_not_followed(hvac: Path, tmp_path: Path) -> None:
    """As in a registry that was unpacked from elsewhere."""
    [history] = offline.read_registry(hvac)
    copy = hvac / history.aliases["champion"].checkpoint
    shutil.move(copy, tmp_path / "outside")
    copy.symlink_to(tmp_path / "outside")
    with pytest.raises(OfflineError, match="is a link, or lies behind one, that leaves"):
        offline.load_policy(f"{hvac}@champion")
    shutil.move(hvac / "history" / "000004.json", tmp_path / "move.json")
    (hvac / "history" / "000004.json").symlink_to(tmp_path / "move.json")
    with pytest.raises(OfflineError, match="is a link, or lies behind one, that leaves"):
        offline.read_registry(hvac)


def test_a_checkpoint_may_have_such_a_name(tmp_path: Path) -> None:
    policy = policy_at(tmp_path / "policy@v2", 1)
    assert offline.evaluate(policy, episodes=2).checkpoint == policy
