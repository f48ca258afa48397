"""From arguments and variables to the clouds' settings; without a server."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pytest

from offline_core.data.store.clouds import AzureCloud, GoogleCloud
from offline_core.data.store.location import Location
from offline_core.data.store.object_store import FoundCredentials
from offline_core.errors import ConfigError
from tests.object_storage.emulators import azure_connection

KEY = "not-to-be-seen-anywhere"


def test_an_emulator_of_google_s_store_knows_nobody() -> None:
    assert GoogleCloud.of({}, {"STORAGE_EMULATOR_HOST": "localhost:4443"}) == GoogleCloud(
        endpoint="http://localhost:4443", anonymous=True
    )
    assert GoogleCloud.of({}, {}) == GoogleCloud()
    assert GoogleCloud.of({"endpoint": "http://here"}, {}) == GoogleCloud(endpoint="http://here")


def test_azure_s_account_comes_from_the_arguments_or_the_variables() -> None:
    environment = {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ACCOUNT_KEY": KEY, "AZURE_STORAGE_SAS_TOKEN": ""}
    assert AzureCloud.of({}, environment) == AzureCloud(account_name="a", account_key=KEY)
    assert AzureCloud.of({"account_name": "b"}, environment).account_name == "b"


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        (f"AccountName=a;AccountKey={KEY}", "https://a.blob.core.windows.net"),
        (f"AccountName=a;AccountKey={KEY};EndpointSuffix=core.cn", "https://a.blob.core.cn"),
        (f"AccountName=a;AccountKey={KEY};BlobEndpoint=http://h:1/a", "http://h:1/a"),
    ],
)
def test_azure_s_connection_string_says_all(text: str, endpoint: str) -> None:
    found = AzureCloud.of({}, {"AZURE_STORAGE_CONNECTION_STRING": text})
    assert (found.account_name, found.account_key, found.endpoint) == ("a", KEY, endpoint)


def test_an_account_that_the_connection_string_contradicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure_connection(1))
    there = Location.of("abfs://container@another.dfs.core.windows.net/x")
    with pytest.raises(
        ConfigError, match="account another is asked for, and AZURE_STORAGE_CONNECTION_STRING leads to devstore"
    ):
        there.files()


def test_keys_stay_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "a")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", KEY)
    place = Location.of("abfs://container/x")
    assert pickle.loads(pickle.dumps(place)) == place
    assert KEY not in repr(place) + str(pickle.dumps(place))


def test_credentials_are_found_again_before_they_expire() -> None:
    now = datetime.now(UTC)
    found = iter([{"token": "1", "expires_at": now + timedelta(minutes=1)}, {"token": "2", "expires_at": None}])
    credentials = FoundCredentials(lambda: next(found))
    assert [credentials()["token"] for _ in range(3)] == ["1", "2", "2"]


def test_credentials_that_cannot_be_renewed_are_used_as_long_as_they_are_valid() -> None:
    def found() -> dict[str, object]:
        if not answers:
            raise TimeoutError("no answer")
        return answers.pop()

    now = datetime.now(UTC)
    for minutes in (1, -1):
        answers = [{"token": "1", "expires_at": now + timedelta(minutes=minutes)}]
        credentials = FoundCredentials(found)
        assert credentials()["token"] == "1"
        if minutes > 0:
            assert credentials()["token"] == "1"
        else:
            with pytest.raises(TimeoutError):
                credentials()


def test_azure_s_variable_for_anonymous_access_is_heeded() -> None:
    assert AzureCloud.of({"account_name": "a"}, {"AZURE_STORAGE_ANON": "true"}).anonymous
    assert not AzureCloud.of({"account_name": "a"}, {"AZURE_STORAGE_ANON": "false"}).anonymous
