"""What masks passwords, keys and tokens."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pyarrow.compute as pc
import pytest

from deployments.server import readable_errors
from flows.prefect_server import trouble
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation, Parent, identity_of
from offline_core.data.environments.vector_env import make_vector_env
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.importing.config import ImportConfig
from offline_core.data.store.json_files import without_secrets
from offline_core.errors import ConfigError, OfflineError
from offline_core.keeping.retention.forget import replace_manifest
from offline_core.policies.recording.config import RecordingConfig
from offline_core.runtime import config
from offline_core.runtime.code_permission import recorded_environment
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.reporting.card import Card, Ran
from offline_core.secrets import MASK, has_masked, is_secret, masked, masked_text
from tests.data.datasets.factories import episode, write_dataset

SECRET = "hunter2-Xq9"


@pytest.mark.parametrize(
    "name",
    [
        *("password", "PASSWORD", "db_password", "dbPassword", "passwd", "pwd", "passphrase", "secret", "client_secret"),
        *("token", "access_token", "hfToken", "session-token", "api_key", "apikey", "aws_secret_access_key", "access_key"),
        *("account_key", "private_key", "sas", "sas_token", "sig", "signature", "credentials", "authorization", "auth"),
        *("PREFECT_API_AUTH_STRING", "connection_string", "environment.kwargs.password", "X-Amz-Signature"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["tokens", "max_tokens", "key", "keys", "author", "authors", "design", "sasha", "passes", "user", "cookies_eaten"]
)
def test_names_of_other_arguments(name: str) -> None:
    assert not is_secret(name)


@pytest.mark.parametrize(
    "text",
    [
        f"http://me:{SECRET}@host:4200/api does not answer",
        f"http://me:{SECRET}@@host:4200/api",
        f"postgresql+asyncpg://me:{SECRET}@host/db",
        f"https://{SECRET}@github.com/a/b",
        f"https://host/a.csv?sv=1&sig={SECRET}&se=2 cannot be read",
        f"https://host/a.csv?X-Amz-Credential={SECRET}&X-Amz-Date=1",
        f"https://host/a.csv?X-Amz-Security-Token={SECRET}",
        f"https://host/a.csv?token={SECRET}",
        f"https://host/a.csv?access_token={SECRET}#x",
        f"https://host/a#access_token={SECRET}",
        f"s3://bucket/a?key={SECRET}",
        f"got {{'storage_options': {{'password': '{SECRET}', 'user': 'me'}}}}",
        f'{{"api_key": "{SECRET}"}}',
        f'{{"password":"{SECRET} and \\"more {SECRET}"}}',
        f"The setting 'environment.kwargs.password={SECRET}' is wrong",
        f"DefaultEndpointsProtocol=https;AccountKey={SECRET};EndpointSuffix=x",
        f"Authorization: Bearer {SECRET}",
        f"line one\n  password: {SECRET}: more {SECRET}\nline three",
        f"  - api_key: {SECRET}",
    ],
)
def test_secrets_in_sentences(text: str) -> None:
    told = masked_text(text)
    assert SECRET not in told and MASK in told
    assert masked_text(told) == told
    assert SECRET not in str(ConfigError(text))


@pytest.mark.parametrize(
    "text",
    [
        "There is no column token: it has password, key and sig.",
        "Column 'token': its values differ.",
        "s3://anonymous@bucket/a and abfs://container@account.dfs.core.windows.net/a",
        "http://127.0.0.1:4200/api, http://host:80/a@b?page=2&sort=asc",
        "mapping.obs=[a, b], where t = 5 and key='a'",
        "C:\\data: no such file",
        "2026-11-26 10:00:00 user: a",
    ],
)
def test_sentences_without_secrets(text: str) -> None:
    assert masked_text(text) == text


def test_secrets_among_arguments() -> None:
    values: dict[str, Any] = {
        "mapping": {"obs": "token", "actions": "password"},
        "columns": {"computed": {"token": "ln(p)", "password": "upper(x)"}},
        "source": {
            "arguments": {
                "storage_options": {"key": SECRET, "secret": SECRET, "endpoint": f"https://me:{SECRET}@host"},
                "separator": ";",
                "connection": f"Server=a;Password={SECRET}",
                "credentials": {"json": {"private": SECRET}},
                "null_values": ["a", f"https://x?sig={SECRET}"],
                "password": 123456,
                "token": 3,
                "secret": None,
            }
        },
        "environment": {"id": "a:B-v0", "kwargs": {"auth": ["me", SECRET], "size": 3, "render": True, "key": "door"}},
        "uris": [f"https://host/a?sig={SECRET}", "runs/a"],
    }
    told = masked(values)
    assert SECRET not in str(told)
    assert masked(told) == told and has_masked(told) and not has_masked(values)
    assert told["mapping"] == values["mapping"] and told["columns"] == values["columns"], "names of columns are data"
    assert told["source"]["arguments"] == {
        "storage_options": {"key": MASK, "secret": MASK, "endpoint": f"https://{MASK}@host"},
        "separator": ";",
        "connection": f"Server=a;Password={MASK}",
        "credentials": MASK,
        "null_values": ["a", f"https://x?sig={MASK}"],
        "password": MASK,
        "token": 3,
        "secret": None,
    }
    assert told["environment"]["kwargs"] == {"auth": MASK, "size": 3, "render": True, "key": "door"}
    assert told["uris"] == [f"https://host/a?sig={MASK}", "runs/a"]


def test_secrets_that_another_program_repeats_without_their_names() -> None:
    arguments = {"storage_options": {"key": "AKIAIOSFODNN7"}, "password": SECRET, "separator": "long text"}
    told = masked_text(f"cannot open {SECRET!r} as AKIAIOSFODNN7 with 'long text'", arguments)
    assert told == f"cannot open '{MASK}' as {MASK} with 'long text'"


@pytest.mark.parametrize("value", [pc.field("t") < 50, pl.col("t") < 50, np.zeros(3), np.zeros(0), pl.DataFrame({"t": [1]})])
def test_arguments_may_be_objects_that_are_neither_true_nor_false(value: Any) -> None:
    arguments = {"filter": value, "password": "hunter22", "nested": [{"filter": value}]}
    assert masked_text("hunter22 is wrong", arguments) == "*** is wrong"
    assert masked(arguments, arguments=True)["password"] == "***"


# Where secrets would stand.


def environment(**more: Any) -> EnvironmentSpec:
    return EnvironmentSpec(id="CartPole-v1", kwargs={"password": SECRET, "url": f"https://me:{SECRET}@host", **more})


def test_an_operation_does_not_depend_on_secrets_and_does_not_have_them() -> None:
    first, other, longer = (
        Operation.of("record", RecordingConfig(environment=each))
        for each in (
            environment(),
            EnvironmentSpec(id="CartPole-v1", kwargs={"password": "renewed", "url": "https://you:renewed@host"}),
            environment(max_episode_steps=9),
        )
    )
    assert SECRET not in first.model_dump_json()
    assert identity_of(first, []) == identity_of(other, []) != identity_of(longer, [])


def test_a_version_does_not_have_secrets_and_keeps_its_identity(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "data", [episode(0)])
    source = SourceConfig(format="csv", arguments={"storage_options": {"secret": SECRET}, "separator": ";"})
    made = dataset.manifest.model_copy(
        update={
            "operation": Operation.of("import", ImportConfig(source=source)),
            "environment": environment(),
            "parents": [Parent(kind="files", uri=f"https://host/a?sig={SECRET}", fingerprint="0")],
        }
    )
    replace_manifest(dataset, made)
    assert all(SECRET.encode() not in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    read = open_dataset(str(tmp_path / "data")).manifest
    assert (read.fingerprint, read.identity) == (made.fingerprint, made.identity)
    assert read.operation.config["source"]["arguments"] == {"storage_options": {"secret": MASK}, "separator": ";"}
    assert read.parents[0].uri == f"https://host/a?sig={MASK}"


def test_a_recorded_environment_gets_the_secrets_of_this_process_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = EnvironmentSpec(id="CartPole-v1", kwargs={"password": SECRET, "goal": [1, 2]})
    stored = without_secrets(given.model_dump_json())
    assert SECRET not in stored
    assert recorded_environment(EnvironmentSpec.model_validate_json(stored), file="runs/a") == given
    monkeypatch.setattr(config, "_GIVEN", {})
    with pytest.raises(ConfigError, match=r"runs/a names the environment 'CartPole-v1' without the secrets"):
        recorded_environment(EnvironmentSpec.model_validate_json(stored), file="runs/a")


def test_a_wrong_parameter_is_named_without_secrets() -> None:
    for values in ({"password": SECRET}, {"arguments": {"password": SECRET}, "where": 3}, {"arguments": [{"token": SECRET}]}):
        with pytest.raises(ConfigError) as error:
            config.parse(SourceConfig, values)
        assert "wrong parameter" in str(error.value)
        assert SECRET not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize(
    "arguments",
    [
        {"storage_options": {"password": SECRET}, "separator": "two"},
        {"password": SECRET},
        {"separator": ",", "null_values": {"password": SECRET}, "no_such": f"https://me:{SECRET}@host"},
    ],
)
def test_wrong_arguments_of_a_reader_are_told_without_secrets(tmp_path: Path, arguments: dict[str, Any]) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    [reader] = open_source([str(tmp_path)], SourceConfig.model_construct(format="csv", arguments=arguments))
    with pytest.raises(OfflineError) as error:
        list(reader.batches())
    assert SECRET not in str(error.value)


def test_an_environment_that_cannot_be_made_is_told_without_secrets() -> None:
    with pytest.raises(ConfigError, match=r"cannot be made with .*'password': '\*\*\*'") as error:
        make_vector_env(EnvironmentSpec(id="MountainCar-v0", kwargs={"password": SECRET}), 1)
    assert SECRET not in str(error.value)


def test_a_card_has_no_secrets() -> None:
    ran = Ran("import", parameters={"source": {"arguments": {"storage_options": {"key": SECRET, "user": "me"}}}})
    uri = f"https://host/a.csv?sig={SECRET}"
    card = Card(f"Import of {uri}", {"From": uri}, word="Imported", sentence=f"5 steps of {uri}.", warnings=[uri], ran=ran)
    shown = b"".join(card.files("card").values()).decode() + card.terminal(verbose=True)
    assert SECRET not in shown and "user: me" in shown


def test_a_server_that_does_not_answer_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", f"http://me:{SECRET}@127.0.0.1:1/api")
    told = trouble(RuntimeError("Failed to reach API at …"))
    with pytest.raises(SystemExit) as error, readable_errors():
        raise httpx.ConnectError(f"at http://me:{SECRET}@127.0.0.1:1/api")
    assert told is not None and f"http://{MASK}@127.0.0.1:1/api" in told
    assert SECRET not in str(error.value)


def test_what_prefect_logs_has_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("prefect.client").warning("Cannot reach %s", f"http://me:{SECRET}@host:4200/api")
    assert caplog.messages == [f"Cannot reach http://{MASK}@host:4200/api"]


def test_a_traceback_that_is_logged_has_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError(f"no answer from https://me:{SECRET}@host")
    except ValueError:
        logging.getLogger("offline_core.tests").exception("A bug")
    told = logging.Formatter().format(caplog.records[-1])
    assert SECRET not in told and f"https://{MASK}@host" in told and "Traceback" in told and told.startswith("A bug")


@pytest.mark.parametrize(
    "text",
    [
        f"{{'config': 'kwargs: {{password: {SECRET}, x: 1}}'}}",
        f"{{'config': 'kwargs:\\n  password: {SECRET}\\n  x: 1'}}",
    ],
)
def test_the_text_of_yaml_is_told_without_secrets(text: str) -> None:
    """As Prefect logs the parameters of a run that it refuses."""
    told = masked_text(text)
    assert SECRET not in told and MASK in told and "x: 1" in told
