"""What S3 refuses is told in the user's words, soon, wherever it is met; and nothing was committed."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows.stages import prune as prune_flow
from offline_core.data.curation.config import PruningConfig
from offline_core.data.curation.prune import prune
from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.dataset import open_dataset, versions
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.store import object_store, s3
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, OfflineError, StorageError, StorageUnavailableError
from tests.cases import slow_but
from tests.data.datasets.factories import episode
from tests.flows.test_cli import ended
from tests.object_storage.conftest import SETTINGS
from tests.object_storage.faults import Answer, Proxy, refusal


@dataclass(frozen=True)
class Case:
    answer: Answer
    told: str
    """Wherever the server says more than a status."""
    told_of_status: str
    """Where it does not, which is in answers to HEAD."""


NOT_LET = r"access denied without a reason: check the permission, the credentials .*AWS_ACCESS_KEY_ID, .* clock"
NOTHING_SAID = r"without a reason: check AWS_REGION, the bucket's name, and whether the session token has expired"
ELSEWHERE = r"the bucket is in the region eu-west-1: set AWS_REGION"
IN_IRELAND = {"x_amz_bucket_region": "eu-west-1"}

CASES = {
    "no permission": Case(refusal(403, "AccessDenied"), "access denied: ask for the permission, or choose another", NOT_LET),
    "wrong key": Case(refusal(403, "InvalidAccessKeyId"), "the access key does not exist: check AWS_ACCESS_KEY_ID", NOT_LET),
    "wrong secret": Case(
        refusal(403, "SignatureDoesNotMatch"), "the secret key does not match the access key: check AWS_SECRET", NOT_LET
    ),
    "expired": Case(refusal(400, "ExpiredToken"), "the session token has expired: log in again", NOTHING_SAID),
    "wrong token": Case(
        refusal(400, "InvalidToken"), "session token is invalid: check AWS_SESSION_TOKEN, or log in again", NOTHING_SAID
    ),
    "clock": Case(refusal(403, "RequestTimeTooSkewed"), "this machine's clock is wrong: set it", NOT_LET),
    "moved": Case(
        refusal(301, "PermanentRedirect", more="<Endpoint>eu-west-1.example</Endpoint>", **IN_IRELAND),
        f"{ELSEWHERE}|the bucket is in another region: set AWS_REGION",
        f"{ELSEWHERE}|the bucket is in another region: set AWS_REGION",
    ),
    "wrong region": Case(
        refusal(400, "AuthorizationHeaderMalformed", more="<Region>eu-west-1</Region>", **IN_IRELAND),
        f"{ELSEWHERE}|the bucket is in another region: set AWS_REGION",
        f"{ELSEWHERE}|{NOTHING_SAID}",
    ),
    "bucket's name": Case(refusal(400, "InvalidBucketName"), "the bucket's name is invalid: correct it", NOTHING_SAID),
}


def write_episodes(uri: str) -> None:
    """As a recorder does, to a folder that was prepared before."""
    with EpisodeWriter(Location.of(uri), "part", format="episodes") as writer:
        writer.write([episode(0)])
    commit(uri, writer.files, format="episodes", operation=Operation(name="test"), statistics=writer.statistics)


WORDY: dict[str, Callable[[str], object]] = {
    "list": lambda uri: Location.of(uri).files(),
    "write": lambda uri: Location.of(uri).write(b"x"),
    "create": lambda uri: Location.of(uri).create(b"x"),
    "delete": lambda uri: Location.of(uri).delete(),
    "make_folder": lambda uri: Location.of(uri).make_folder(),
    "lock": lambda uri: Location.of(uri).locked().__enter__(),
    "put_file": write_episodes,
    "prepare_dataset": prepare_dataset,
    "open_dataset": open_dataset,
}
SILENT: dict[str, Callable[[str], object]] = {
    "prune": lambda uri: prune(PruningConfig(), dataset=uri, output=f"{uri}-pruned"),
    "read": lambda uri: Location.of(uri).read(),
    "look": lambda uri: Location.of(uri).is_folder(),
}


def message_of(ask: Callable[[str], object], uri: str) -> str:
    """Of the error, which names the place, and no secret."""
    with pytest.raises(StorageError) as caught:
        ask(uri)
    message = str(caught.value)
    assert uri.split("/")[2] in message
    assert "Errno" not in message
    for secret in (SETTINGS["AWS_SECRET_ACCESS_KEY"], "Signature="):
        error: BaseException | None = caught.value
        while error is not None:
            assert secret not in str(error)
            error = error.__cause__ or error.__context__
    return message


@pytest.mark.parametrize(
    "what", slow_but(CASES, "no permission", "wrong secret", "expired", "moved", "wrong region", "bucket's name")
)
def test_whatever_is_asked_the_reason_is_told(bucket: str, proxied: Proxy, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    case = CASES[what]
    proxied.plan = lambda request: case.answer
    for name, ask in WORDY.items():
        assert re.search(case.told, message_of(ask, f"{bucket}/runs/x")), name
    for name, ask in SILENT.items():
        assert re.search(case.told_of_status, message := message_of(ask, f"{bucket}/runs/x")), (name, message)
    proxied.plan = lambda request: None
    assert Location.of(bucket + "/").files() == []


def test_what_is_refused_in_the_end_is_not_committed(bucket: str, proxied: Proxy) -> None:
    """The data may be written, and the manifest not: there is no version, and the next try makes it."""
    uri = f"{bucket}/runs/x"
    prepare_dataset(uri)
    denied = refusal(403, "AccessDenied")
    proxied.plan = lambda request: denied if "_versions/0" in request.path else None
    assert "access denied" in message_of(write_episodes, uri)
    proxied.plan = lambda request: None
    assert versions(uri) == [] and len(Location.of(uri).files()) == 1
    write_episodes(uri)
    assert versions(uri) == [1] and len(open_dataset(uri).manifest.files) == 1


def test_a_bucket_that_is_not_there_is_named_by_the_server_itself(bucket: str) -> None:
    uri = f"{bucket}-not-there/runs/x"
    for ask in (WORDY["write"], WORDY["prepare_dataset"], WORDY["put_file"], WORDY["open_dataset"]):
        assert "the bucket does not exist: create it, or correct its name" in message_of(ask, uri)


# Before anything is asked.


def test_missing_credentials_are_named(proxied: Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    for ask in (WORDY["list"], WORDY["write"], SILENT["read"]):
        assert "no credentials were found: set AWS_ACCESS_KEY_ID" in message_of(ask, f"{bucket}/runs/x")
    assert proxied.seen == []


def test_a_profile_that_is_not_there_is_named(proxied: Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody-s")
    for ask in (WORDY["list"], WORDY["write"], SILENT["read"]):
        assert "AWS_PROFILE names a profile that does not exist" in message_of(ask, f"{bucket}/runs/x")


CONFIGURED = {
    "malformed": ("no section\n", "Unable to parse config file"),
    "region": ("[default]\nregion = eu west\n", "eu west"),
    "endpoint": ("[default]\nregion = us-east-1\nendpoint_url = minio:9000\n", "minio:9000"),
    "source": ("[default]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = none\n", "none"),
    "process": ("[default]\ncredential_process = sh -c 'echo not today >&2; exit 1'\n", "not today"),
    "no process": ("[default]\ncredential_process = /nowhere/helper\n", "No such file or directory: /nowhere/helper"),
    "no token": (
        "[default]\nrole_arn = arn:aws:iam::1:role/x\nweb_identity_token_file = /nowhere/token\n",
        "No such file or directory: /nowhere/token",
    ),
}
"""~/.aws/config, and what is told of it."""


def forget_clients() -> None:
    for made in (s3._session, s3._credentials, s3._boto_client, s3._endpoint):
        made.cache_clear()


@pytest.mark.parametrize("what", CONFIGURED)
def test_what_is_wrong_here_does_not_pass_and_is_no_absence(
    what: str, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config, told = CONFIGURED[what]
    (tmp_path / "config").write_text(config)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    keys = () if what in ("region", "endpoint") else ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    for name in ("AWS_REGION", "AWS_ENDPOINT_URL", *keys):
        monkeypatch.delenv(name)
    forget_clients()
    for ask in (WORDY["list"], WORDY["write"], WORDY["open_dataset"], SILENT["read"]):
        message = message_of(ask, f"{bucket}/runs/x")
        assert "the client's configuration is invalid: correct it" in message and told in message
        assert " now: " not in message and "not there" not in message
    forget_clients()


@pytest.mark.parametrize("endpoint", ["localhost:9000", "http://", "minio", "ftp://minio"])
def test_an_endpoint_that_is_no_url(bucket: str, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(ConfigError, match=rf"endpoint: .*got '{endpoint}'"):
        Location.of(f"{bucket}/runs/x")


# Nobody there, or somebody else.


@pytest.mark.parametrize("seconds", [0.1, pytest.param(object_store.RETRY_SECONDS, marks=pytest.mark.slow)])
def test_an_endpoint_that_is_down(bucket: str, monkeypatch: pytest.MonkeyPatch, seconds: float, silent_port: int) -> None:
    monkeypatch.setattr(object_store, "RETRY_SECONDS", seconds)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent_port}")
    for ask in (WORDY["list"], WORDY["write"]):
        with pytest.raises(StorageUnavailableError, match=r"[Cc]ould not connect to .*Try again when the storage answers"):
            ask(f"{bucket}/runs/x")


def test_a_server_that_speaks_no_tls(bucket: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0.1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint.replace("http:", "https:"))
    for ask in (SILENT["read"], WORDY["write"]):
        assert "the TLS handshake failed, or the certificate is not trusted" in message_of(ask, f"{bucket}/runs/x")


@pytest.mark.slow
def test_a_server_that_takes_connections_and_says_nothing(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ANSWER_SECONDS": 1, "RETRY_SECONDS": 0.0}.items():
        monkeypatch.setattr(object_store, name, value)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for ask in (WORDY["list"], WORDY["write"]):
            with pytest.raises(StorageUnavailableError):
                ask(f"{bucket}/runs/x")


# Whole runs.


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
@pytest.mark.filterwarnings("default")
def test_a_flow_fails_with_the_reason(bucket: str, proxied: Proxy) -> None:
    prepare_dataset(f"{bucket}/raw")
    write_episodes(f"{bucket}/raw")
    denied = refusal(403, "AccessDenied")
    proxied.plan = lambda request: denied if request.method == "PUT" else None
    with pytest.raises(OfflineError, match=r"Cannot (write|lock) s3://.*access denied: ask for the permission"):
        prune_flow(dataset=f"{bucket}/raw", output=f"{bucket}/pruned", config=PruningConfig())
    proxied.plan = lambda request: None
    assert Location.of(f"{bucket}/pruned").files() == []


def test_the_command_line_says_the_reason_alone(
    bucket: str, proxied: Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proxied.plan = lambda request: None if request.method == "HEAD" else CASES["wrong secret"].answer
    code, output, errors = ended(monkeypatch, capsys, "inspect", f"{bucket}/raw")
    assert code == 1
    assert "the secret key does not match the access key: check AWS_SECRET_ACCESS_KEY" in " ".join(errors.split())
    assert "Traceback" not in errors and SETTINGS["AWS_SECRET_ACCESS_KEY"] not in output + errors
