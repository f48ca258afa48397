"""With a key, decisions and moves that nobody with it wrote are refused or told; without one, all is as before."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import offline_core as offline
from offline_core.data.store.json_files import with_checksum
from offline_core.errors import ConfigError, PromotionError
from offline_core.keeping.inspection import registry_card
from offline_core.runtime.signing import KEY, key_id
from tests.keeping.promotion.decisions import decision_at, policy_at

SECRET, OTHER = "k" * 32, "another key of thirty-two bytes.."


@pytest.fixture
def hvac(tmp_path: Path) -> str:
    return str(tmp_path / "registry" / "hvac")


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Sets the key, or takes it away."""

    def use(key: str | None) -> None:
        monkeypatch.delenv(KEY, raising=False) if key is None else monkeypatch.setenv(KEY, key)

    use(SECRET)
    return use


def rewritten(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """As by a program that knows how checksums are made."""
    values = {name: value for name, value in json.loads(file.read_text()).items() if name != "checksum"}
    change(values)
    file.write_bytes(with_checksum(json.dumps(values)))


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def decision(tmp_path: Path, number: int = 1, **changes: Any) -> str:
    return decision_at(tmp_path / f"decision-{number}", policy_at(tmp_path / f"policy-{number}", number), **changes)


def test_what_is_signed_is_promoted_and_nothing_is_told(
    hvac: str, tmp_path: Path, key: Callable[[str | None], None], caplog: pytest.LogCaptureFixture
) -> None:
    first = offline.promote(decision(tmp_path), registry=hvac)
    named = {"against": first.checkpoint, "against_fingerprint": first.move.fingerprint, "recorded": float("inf")}
    second = offline.promote(decision(tmp_path, 2, **named), registry=hvac)
    offline.rollback(hvac)
    assert first.move.evidence is not None and first.move.evidence.signature and second.move.signature
    assert offline.load_policy(f"{hvac}@champion") is not None
    assert not registry_card(hvac).warnings and not warned(caplog)
    with pytest.raises(PromotionError, match="moved it before"):
        offline.promote(str(tmp_path / "decision-2"), registry=hvac)
    rewritten(tmp_path / "decision-2" / "result.json", lambda values: values.update(identity="another one"))
    with pytest.raises(PromotionError, match="moved it before"):
        offline.promote(str(tmp_path / "decision-2"), registry=hvac)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda result: result.update(verdict="promote"), "is not what was signed"),
        (lambda result: result.update(verdict="promote", signature=None), f"is not signed, and {KEY} is set"),
        (lambda result: result.update(registry="elsewhere", verdict="promote"), "is not what was signed"),
        (lambda result: result.update(signature="hmac-sha256:ä:1"), "is signed by another key"),
        (lambda result: result.update(signature="x"), r"is signed by another key \(\?\)"),
    ],
)
def test_a_forged_decision_is_refused(
    hvac: str, tmp_path: Path, key: Callable[[str | None], None], change: Callable[[dict[str, Any]], object], told: str
) -> None:
    forged = decision(tmp_path, verdict="keep")
    rewritten(Path(forged) / "result.json", lambda values: change(values["result"]))
    with pytest.raises(PromotionError, match=f"{told}.* Decide again with the key, or say why"):
        offline.promote(forged, registry=hvac)
    assert not Path(hvac).exists()


def test_without_a_key_nothing_of_it_is_looked_at(hvac: str, tmp_path: Path, key: Callable[[str | None], None]) -> None:
    forged = decision(tmp_path, verdict="keep")
    rewritten(Path(forged) / "result.json", lambda values: values["result"].update(verdict="promote"))
    key(None)
    assert offline.promote(forged, registry=hvac).move.signature is None


def test_a_decision_by_another_key_is_refused_and_says_so_by_words_that_are_no_keys(
    hvac: str, tmp_path: Path, key: Callable[[str | None], None]
) -> None:
    made, by = decision(tmp_path), key_id()
    key(OTHER)
    with pytest.raises(PromotionError, match=rf"signed by another key \({by}\) than {KEY} holds \({key_id()}\)"):
        offline.promote(made, registry=hvac)
    assert SECRET[:8] not in str(by) and by != key_id()


def test_moves_that_nobody_with_the_key_wrote_are_told(
    hvac: str, tmp_path: Path, key: Callable[[str | None], None], caplog: pytest.LogCaptureFixture
) -> None:
    key(None)
    offline.promote(policy_at(tmp_path / "1", 1), registry=hvac, override="before there was a key")
    key(SECRET)
    offline.promote(policy_at(tmp_path / "2", 2), registry=hvac, override="with the key")
    [unsigned] = registry_card(hvac).warnings
    assert unsigned.startswith(f"Move 1 of {hvac}, champion to ") and "is not signed" in unsigned
    assert "Move 1 of" in caplog.text and "offline registry" in caplog.text
    caplog.clear()
    assert offline.load_policy(f"{hvac}@champion") is not None and not warned(caplog)
    rewritten(Path(hvac) / "history" / "000002.json", lambda values: values.update(moved_by="eve"))
    assert offline.load_policy(f"{hvac}@champion") is not None
    assert "Move 2 of" in caplog.text and "is not what was signed" in caplog.text
    key(None)
    assert not registry_card(hvac).warnings


def test_a_move_that_is_copied_to_another_number_or_name_is_told(
    hvac: str, tmp_path: Path, key: Callable[[str | None], None]
) -> None:
    for number in (1, 2):
        offline.promote(policy_at(tmp_path / str(number), number), registry=hvac, override="a test")
    [history] = offline.read_registry(hvac)
    first, second = history.moves
    assert first.wrong_signature("hvac") is None and second.wrong_signature("hvac") is None
    again = first.model_copy(update={"number": 3, "previous": second.checkpoint})
    assert "it was changed since, or is a copy from another place" in str(again.wrong_signature("hvac"))
    Path(hvac).rename(Path(hvac).with_name("lights"))
    told = registry_card(str(tmp_path / "registry" / "lights")).warnings
    assert len(told) == 2 and all("is a copy from another place" in each for each in told)


def test_the_key_is_in_no_file_no_message_and_no_log(
    hvac: str, tmp_path: Path, key: Callable[[str | None], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    offline.promote(decision(tmp_path), registry=hvac)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    key(SECRET[:31])
    with pytest.raises(ConfigError, match="has 31 bytes and needs 32 or more") as refused:
        offline.promote(decision(tmp_path / "second"), registry=hvac)
    assert SECRET[:31] not in f"{refused.value}{caplog.text}"


def test_a_key_is_the_same_with_a_line_break_behind_it(key: Callable[[str | None], None]) -> None:
    """As a file has it that became a secret."""
    named = key_id()
    key(f"{SECRET}\n")
    assert key_id() == named
