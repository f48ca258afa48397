"""The report as a server: who is let in, what each answer says, and what changes while it runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from offline_core.data.datasets import row_group
from offline_core.data.datasets.catalogue import Catalogue
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.marks import read_marks
from offline_core.errors import ConfigError, StorageError
from offline_core.keeping.homepage import page_contents, policies, serving, site
from offline_core.keeping.homepage.config import ReportConfig
from offline_core.keeping.homepage.serving import LiveSite, ReportServer, Rows
from tests.data.datasets.factories import episode, write_dataset
from tests.keeping.homepage.served import HOSTILE, building_episode, rows_in, server_of, write_metrics
from tests.waiting import wait_until


class Asked:
    """A browser that was at the address with the token, as far as these tests need one."""

    def __init__(self, server: ReportServer) -> None:
        self.live = server.live
        self.base, _, self.token = server.address.partition("/?token=")
        self.http = httpx.Client(base_url=self.base)
        self.http.get(f"/?token={self.token}")

    def value(self, *name: Any, tag: str = "") -> Any:
        return self.answer(*name, tag=tag).json()

    def rows(self, name: str) -> dict[str, dict[str, Any]]:
        return rows_in(self.value(name))

    def answer(self, *name: Any, tag: str = "") -> httpx.Response:
        self.live._next_look = 0.0
        return self.http.get("/value", params={"of": json.dumps(name)}, headers={"If-None-Match": tag} if tag else {})

    def mark(self, is_bad: bool = True, origin: str | None = None, **body: Any) -> httpx.Response:
        return self.http.post(
            "/mark", json={"is_bad": is_bad, **body}, headers={"Origin": self.base if origin is None else origin}
        )

    def note(self, origin: str | None = None, **body: Any) -> httpx.Response:
        return self.http.post("/note", json=body, headers={"Origin": self.base if origin is None else origin})

    @property
    def root(self) -> Path:
        return Path(self.live.root.path)


@pytest.fixture
def asked(whole: Path, tmp_path: Path) -> Iterator[Asked]:
    """Of a root that the test may change."""
    shutil.copytree(whole, tmp_path / "runs")
    with server_of(tmp_path / "runs") as server:
        asked = Asked(server)
        yield asked
        asked.http.close()


@pytest.fixture(scope="module")
def reading(whole: Path) -> Iterator[Asked]:
    """Of one that no test changes."""
    with server_of(whole) as server:
        asked = Asked(server)
        yield asked
        asked.http.close()


def test_what_is_newest_is_shown_before_thousands_of_runs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(["oldest", "older", "newest"]):
        write_metrics(tmp_path / name, 1)
        os.utime(tmp_path / name / "metrics.jsonl", (10**9 + number, 10**9 + number))
    write_dataset(tmp_path / "data", [episode(0)])
    monkeypatch.setattr(serving, "FIRST_FOLDERS", 1)
    go_on, read = threading.Event(), LiveSite._read_on

    def later(live: LiveSite, catalogue: Catalogue) -> None:
        go_on.wait()
        read(live, catalogue)

    monkeypatch.setattr(LiveSite, "_read_on", later)
    live = LiveSite(str(tmp_path), ReportConfig())
    assert ([*live.site.runs], [*live.site.datasets], live._unread) == (["newest"], ["data"], 2)
    go_on.set()
    wait_until(lambda: live._unread == 0, what="the older files")
    assert live.site.runs.keys() == {"oldest", "older", "newest"}
    moment = json.loads(live.answer(["moment"], None)[2])
    assert (moment["unread"], moment["change"] > 0) == (0, True)


def test_an_error_that_nobody_expected_costs_what_it_meets_and_is_told_once(
    whole: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise AttributeError("no such thing")

    monkeypatch.setattr(policies, "_row", fail)
    monkeypatch.setattr(site, "registry_of", fail)
    with server_of(whole) as server:
        asked = Asked(server)
        said = "by a defect of this package (AttributeError: no such thing)"
        assert asked.rows("policies") == {} and len(asked.rows("datasets")) == 3
        assert any(said in reason for _, reason in server.live.site.contents.problems)
        for _ in range(3):
            assert said in asked.value("overview")["error"] and said in asked.value("registry")["error"]
        asked.http.close()
    assert len([record for record in caplog.records if said in record.message and record.exc_info]) == 1
    assert len({record.message for record in caplog.records}) == len(caplog.records)


def test_what_could_not_be_read_on_is_read_by_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "two"):
        write_metrics(tmp_path / name, 1)
    monkeypatch.setattr(serving, "FIRST_FOLDERS", 1)

    def fail(live: LiveSite, catalogue: Catalogue) -> None:
        raise StorageError("The disk does not answer.")

    monkeypatch.setattr(LiveSite, "_show", fail)
    live = LiveSite(str(tmp_path), ReportConfig())
    wait_until(lambda: caplog.records, what="the error")
    assert "The disk does not answer." in caplog.text and len(live.site.runs) == 1
    monkeypatch.undo()
    with live._looking:
        live._next_look = 0.0
    live.look()
    assert len(live.site.runs) == 2


def test_long_answers_are_compressed(reading: Asked) -> None:
    answer = reading.answer("runs")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert int(answer.headers["Content-Length"]) < len(answer.content)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 403),
        ("/?token=", {}, 403),
        ("/?token=wrong", {}, 403),
        ("/?token=th%C3%A9-token", {}, 403),
        ("/value?of=[%22runs%22]", {"Cookie": "offline-report-PORT=wrong"}, 403),
        ("/value?of=[%22runs%22]", {"Cookie": "offline-report-1=TOKEN"}, 403),
        ("/?token=TOKEN", {"Host": "attacker.example"}, 421),
        ("/?token=TOKEN", {"Host": "127.0.0.1.attacker.example:PORT"}, 421),
        ("/?token=TOKEN", {"Host": "127.0.0.1:80"}, 421),
        ("/?token=TOKEN", {"Origin": "http://attacker.example"}, 403),
        ("/value?of=[%22runs%22]", {"Cookie": "offline-report-PORT=TOKEN", "Origin": "http://127.0.0.1:1"}, 403),
        ("/value?of=[%22runs%22]", {"Cookie": "offline-report-PORT=TOKEN", "Origin": "null"}, 403),
        ("/value?of=[%22runs%22]", {"Cookie": "offline-report-PORT=TOKEN", "Origin": "http://127.0.0.1:PORT"}, 200),
        ("/../../etc/passwd?token=TOKEN", {}, 404),
        ("/static/page.js?token=TOKEN", {}, 404),
        ("/?token=TOKEN", {}, 200),
        ("/", {"Cookie": "offline-report-PORT=TOKEN"}, 200),
        ("/?token=TOKEN", {"Host": "localhost:PORT"}, 200),
    ],
)
def test_only_the_token_and_the_own_name_let_in(reading: Asked, path: str, headers: Mapping[str, str], status: int) -> None:
    port = reading.base.rpartition(":")[2]

    def with_secrets(text: str) -> str:
        return text.replace("TOKEN", reading.token).replace("PORT", port)

    connection = HTTPConnection("127.0.0.1", int(port))
    connection.request("GET", with_secrets(path), headers={name: with_secrets(text) for name, text in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status == status
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"
    cookie = answer.headers["Set-Cookie"]
    assert (cookie is not None) == (status in (200, 404) and "token" in path)
    assert cookie is None or ("HttpOnly" in cookie and "SameSite=Strict" in cookie)
    if status != 200:
        assert "<" not in text and reading.token not in text


@pytest.mark.parametrize(
    "name",
    [
        ["dataset", "../../etc"],
        ["dataset", "/etc/passwd"],
        ["policy", "policy/../policy/best"],
        ["curves", "../runs/policy"],
        ["beside", "building", 0, "../../policy/best"],
        ["episode", "building", 60],
        ["episode", "building", -1],
        ["episode", "building", "0"],
        ["episode", "building"],
        ["for_file"],
        ["_latest", "building"],
        ["runs", "x"],
        ["__class__"],
    ],
)
def test_what_is_no_name_has_no_value(reading: Asked, name: list[Any]) -> None:
    answer = reading.answer(*name)
    assert (answer.status_code, answer.json()) == (200, None)


@pytest.mark.parametrize("text", ["", "{}", "[]", "[null]", "[[1]]", '["runs"', "\u2028"])
def test_what_is_no_list_of_words_is_refused_in_words(reading: Asked, text: str) -> None:
    answer = reading.http.get("/value", params={"of": text})
    assert answer.status_code == 200 and "cannot be answered" in answer.json()["error"]


def test_any_episode_is_read_with_its_names_times_and_choices(reading: Asked) -> None:
    episodes = reading.value("episodes", "building")
    assert (episodes["total"], episodes["number"]) == (60, [*range(60)])
    page, wanted = reading.value("episode", "building", 57), building_episode(57)
    assert (page["id"], page["length"], page["end"]) == ("episode-0057", 48, "truncated")
    assert page["names"][0] == ["observations", "indoor temperature (°C)"]
    [choices] = page["labels"].values()
    assert choices == ["off", "heat"] and page["clock"]["name"] == "hours since 2026-01-01 00:00:00"
    asked_again = reading.value("episode", "building", 57)
    assert asked_again == page
    assert page["return"] == pytest.approx(float(wanted.rewards.sum()), rel=1e-5)


def test_only_the_row_group_of_an_episode_is_read(reading: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    reading.value("episodes", "building")
    read: list[list[int]] = []
    real = row_group._read
    monkeypatch.setattr(
        row_group,
        "_read",
        lambda groups, names: (read.append([each.number_in_dataset for each in groups]), real(groups, names))[1],
    )
    assert reading.value("episode", "building", 30)["id"] == "episode-0030"
    assert len(read) == 1 and len(read[0]) == 1


@pytest.mark.parametrize(
    ("what", "condition", "wanted"),
    [
        ("episodes", "eps_id = 'episode-0007'", [7]),
        ("episodes", "length > 48", []),
        ("steps", "obs[1] > 1000", []),
        ("steps", "t = 47 and obs[1] > -1000", [*range(60)]),
    ],
)
def test_a_condition_of_prune_finds_episodes(reading: Asked, what: str, condition: str, wanted: list[int]) -> None:
    page = reading.value("matching", "building", what, condition)
    assert (page["number"], page["matching"], page["total"]) == (wanted, len(wanted), 60)


@pytest.mark.parametrize("condition", ["reward >", "nothing > 3", "(select 1)", "length > read_csv('/etc/passwd')"])
@pytest.mark.parametrize("what", ["episodes", "steps"])
def test_a_condition_that_is_none_is_told(reading: Asked, what: str, condition: str) -> None:
    assert "condition" in reading.value("matching", "building", what, condition)["error"]


def test_what_did_not_change_is_not_sent_again_and_of_a_list_only_rows_that_did(asked: Asked) -> None:
    root = asked.root
    first = asked.answer("runs")
    moment = asked.answer("moment")
    assert asked.answer("runs", tag=first.headers["ETag"]).status_code == 304
    write_metrics(root / "going on", 9)
    write_metrics(root / "new", 2)
    shutil.rmtree(root / "sweep/0000000000000000/2")
    changed = asked.answer("runs", tag=first.headers["ETag"])
    assert changed.status_code == 226
    assert sorted(changed.json()["rows"]) == ["going on", "new"]
    assert changed.json()["gone"] == ["sweep/0000000000000000/2"]
    assert rows_in(changed.json())["going on"]["updates"] == 900
    assert asked.value("moment")["change"] == moment.json()["change"] + 1
    assert asked.value("curves", "going on")["loss"][0] == [100 * i for i in range(1, 10)]
    assert asked.answer("runs", tag='"of another server-1"').status_code == 200
    write_dataset(root / "more", [episode(0)])
    assert "more" in asked.rows("datasets")


def test_files_that_did_not_change_are_not_read_again(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    write_metrics(asked.root / "going on", 9)
    monkeypatch.setattr(page_contents, "read_result", None)
    rows = asked.rows("runs")
    assert rows["going on"]["updates"] == 900 and rows["policy"]["kind"] == "training"


def test_marks_are_kept_beside_the_dataset_and_taken_away(asked: Asked) -> None:
    location = open_dataset(str(asked.root / "building")).location
    assert asked.mark(dataset="building", number=3).json() == {}
    assert [each.eps_id for each in read_marks(location).marks] == ["episode-0003"]
    assert asked.value("episodes", "building")["marked"] == [3]
    asked.mark(dataset="building", number=3, is_bad=False)
    assert read_marks(location).marks == []


def test_a_note_is_kept_beside_the_run_and_taken_back(asked: Asked) -> None:
    before = asked.rows("runs")
    name = next(name for name, run in before.items() if run["status"] != "failed")
    assert asked.note(run=name, text="The baseline #paper").json() == {}
    assert asked.rows("runs") == before | {name: before[name] | {"note": "The baseline #paper"}}
    assert (asked.root / name / "_about" / "000001.json").is_file()
    asked.note(run=name, text=" ")
    assert asked.rows("runs") == before
    for wrong in (
        {"run": "../elsewhere", "text": "x"},
        {"run": name},
        {"run": name, "text": 3},
        {"run": "building", "text": "x"},
    ):
        assert "error" in asked.note(**wrong).json()
    assert asked.note(origin="http://attacker.example", run=name, text="x").status_code == 403
    assert "error" in asked.note(run=name, text="x" * 200_000).json()
    assert asked.rows("runs") == before


@pytest.mark.parametrize("origin", ["http://attacker.example", "null", "", "http://127.0.0.1:1"])
def test_no_other_page_marks(asked: Asked, origin: str) -> None:
    assert asked.mark(origin=origin, dataset="building", number=3).status_code == 403
    asked.http.cookies.clear()
    assert asked.mark(dataset="building", number=3).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {"dataset": "../building", "number": 1},
        {"dataset": "building", "number": 60},
        {"number": True, "dataset": "building"},
        {},
    ],
)
def test_what_is_no_episode_is_not_marked(asked: Asked, body: Mapping[str, Any]) -> None:
    assert "error" in asked.mark(**body).json()
    assert asked.mark(dataset="x" * 200_000, number=1).status_code == 413


def test_a_policy_is_shown_beside_the_behaviour(reading: Asked) -> None:
    page = reading.value("beside", "building", 5, "policy/best")
    assert ["actions", "heating"] in page["names"] and page["policy"]
    assert "observation space" in reading.value("beside", "camera", 0, "policy/best")["error"]


def test_a_policy_has_its_command_its_parameters_and_what_refused_it(reading: Asked) -> None:
    page = reading.value("policy", "policy/best")
    assert page["command"] == "offline train building" and page["parameters"]["optimizer.max_updates"] == 60
    assert page["experiment"] == "policy" and page["from"][0] == "building v1"
    assert sorted(each["name"] for each in page["decisions"]) == ["promote", "refused"]
    assert (len(page["evaluations"]), len(page["estimates"])) == (1, 1)
    assert page["estimates"][0]["methods"]["wis"] == "weighted importance sampling"
    assert {(each["advice"][:7], each["next"][:15]) for each in page["decisions"]} == {
        ("Decide ", ""),
        ("Nothing", "offline explain"),
    }


def test_a_training_without_a_card_has_the_command_that_repeats_it(reading: Asked) -> None:
    name = next(name for name in reading.rows("policies") if name.startswith("sweep/"))
    _, verb, data, output, *options = shlex.split(reading.value("policy", name)["command"])
    assert verb == "train" and data.endswith("/building") and f"{output}/best".endswith(name)
    assert options[:2] == ["--version", "1"] and "optimizer.max_updates=60" in options
    assert any(option.startswith("evaluation.held_out=") and option.endswith("@1") for option in options)


def test_experiments_have_seeds_parameters_that_differ_and_the_sentence_of_a_failure(reading: Asked) -> None:
    rows = reading.rows("runs")
    swept = {name: row for name, row in rows.items() if row["setting"] == "learning_rate=0.001"}
    assert sorted(row["seed"] for row in swept.values() if row["status"] != "failed") == [0, 1, 2]
    assert {row["parameters"]["optimizer.learning_rate"] for row in swept.values()} == {0.001}
    assert {row["called"] for row in swept.values()} == {f"sweep: learning_rate=0.001, seed {seed}" for seed in range(3)}
    called = [row["called"] for name, row in reading.rows("policies").items() if name.startswith("sweep/")]
    assert sorted(called)[0] == "sweep: learning_rate=0.0003, seed 0, best" and len({*called}) == 6
    failed = rows["sweep: learning_rate=1, seed 0"]
    assert failed["status"] == "failed" and "The loss is NaN at update 40" in failed["told"]
    overview = reading.value("overview")
    assert overview["failed"].keys() == {"sweep: learning_rate=1, seed 0"} and overview["failures"] == 1
    assert len(overview["best"]) == len(rows) - 1 and not overview["best"].keys() & overview["failed"].keys()


def test_names_of_others_are_only_text(reading: Asked) -> None:
    assert HOSTILE in reading.rows("datasets") and HOSTILE in reading.value("episodes", HOSTILE)["id"]
    assert HOSTILE not in reading.http.get("/").text


def test_rows_tell_what_changed_since_any_change() -> None:
    rows, random = Rows(), np.random.default_rng(0)
    now: dict[str, int] = {}
    copies: dict[int, dict[str, int]] = {0: {}}
    for _ in range(60):
        now = {str(name): int(random.integers(3)) for name in random.choice(6, random.integers(1, 6), replace=False)}
        rows.update([], now)
        for number, copy in copies.items():
            told = rows.since(number)
            assert {**{name: row for name, row in copy.items() if name not in told["gone"]}, **told["rows"]} == now
        copies[rows.number] = now


def test_a_port_that_is_taken_and_a_root_that_is_not_there_are_refused(tmp_path: Path) -> None:
    first = ReportServer(str(tmp_path), ReportConfig())
    port = int(first.address.split(":")[2].split("/")[0])
    with first._socket, pytest.raises(ConfigError, match=f"Port {port} of 127.0.0.1 cannot be used"):
        ReportServer(str(tmp_path), ReportConfig(), port=port)
    with pytest.raises(StorageError, match="There is no folder"):
        ReportServer(str(tmp_path / "runs"), ReportConfig())


def test_without_uvicorn_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ConfigError, match=r"needs uvicorn.*'\.\[serve\]'"):
        ReportServer(str(tmp_path), ReportConfig())


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_command_tells_the_address_and_ends_in_order(tmp_path: Path, stop: signal.Signals) -> None:
    write_dataset(tmp_path / "data", [episode(0)])
    command = [sys.executable, "-c", "from flows.cli import main; main()", "report", str(tmp_path), "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        address = re.findall(r"http://127\.0\.0\.1:\d+/\?token=\S+", process.stdout.readline())[0]
        assert httpx.get(address).status_code == 200
        process.send_signal(stop)
        assert (process.wait(), process.stderr.read()) == (0, "")
    assert not (tmp_path / "report.html").exists()
