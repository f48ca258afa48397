"""What masks passwords, keys and tokens."""

from __future__ import annotations

from typing import Any

import pytest

from offline_core.errors import ConfigError
from offline_core.secrets import MASK, has_masked, is_secret, masked, masked_text

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
