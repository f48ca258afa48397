"""Google's store, Azure's, and one in the memory of this process; S3 has a module of its own."""

from __future__ import annotations

import errno
import functools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import Field

from offline_core.data.store.object_store import TRUE, Cloud, FoundCredentials, ObjectStore
from offline_core.data.store.storage_errors import RefusedError
from offline_core.data.store.variables import with_variables
from offline_core.errors import ConfigError, LocationError
from offline_core.runtime.config import parse

_GOOGLE_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_NO_ACCOUNT = (
    "no account was named: set AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_ACCOUNT_NAME, or write "
    "abfs://container@account.dfs.core.windows.net/folder"
)


@dataclass(frozen=True)
class NamedStore(ObjectStore):
    """See `ObjectStore`."""

    kind: type[Cloud]
    arguments: str = field(repr=False)
    """Of `kind`, as JSON; the value of a variable `${NAME}` never leaves the process."""

    def cloud(self) -> Cloud:
        return self.kind.of(with_variables(json.loads(self.arguments)))


class GoogleCloud(Cloud):
    """Google's store; google-auth finds the credentials."""

    endpoint: str | None = Field(None, description="URL of a server other than Google's, such as an emulator.")

    @classmethod
    def of(cls, arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Self:
        """An emulator, as the variable of Google's libraries names it, is asked without credentials."""
        emulator = environment.get("STORAGE_EMULATOR_HOST", "")
        if emulator and "://" not in emulator:
            emulator = f"http://{emulator}"
        return parse(cls, {"endpoint": emulator or None, "anonymous": bool(emulator)} | dict(arguments))

    @property
    def server(self) -> str:
        return self.endpoint or ""

    def credentials(self) -> FoundCredentials | None:
        return None if self.anonymous else _google_credentials()

    def open(self, bucket: str, options: dict[str, Any]) -> Any:
        from obstore.store import GCSStore

        config: Any = {"base_url": self.endpoint.rstrip("/")} if self.endpoint else {}
        if self.anonymous:
            config |= {"skip_signature": True, "bearer_token": "anonymous"}  # which obstore heeds in reads and in writes
        return GCSStore(bucket, config=config, **options)


class AzureCloud(Cloud):
    """Azure's containers of blobs; azure-identity finds a user or a role if no key is given."""

    account_name: str | None = Field(None, description="Name of the account.")
    account_key: str | None = Field(None, description="Its key; None: a token, or what azure-identity finds.")
    sas_token: str | None = Field(None, description="A shared access signature.")
    connection_string: str | None = Field(None, description="All of these in one text, as Azure's portal shows it.")
    endpoint: str | None = Field(None, description="URL of the account, if it is not at Azure's usual address.")

    @classmethod
    def of(cls, arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Self:
        """Complete the arguments by the variables of Azure's tools, and by the parts of the connection string.

        Raises:
            ConfigError: the connection string leads to another account than the one that is asked for.
        """
        names = ("account_name", "account_key", "sas_token", "connection_string")
        usual: dict[str, Any] = {
            name: environment[text] for name in names if environment.get(text := f"AZURE_STORAGE_{name.upper()}")
        }
        usual["anonymous"] = environment.get("AZURE_STORAGE_ANON", "").lower() in TRUE
        asked = parse(cls, usual | dict(arguments))
        if asked.connection_string is None:
            return asked
        parts = dict(part.strip().partition("=")[::2] for part in asked.connection_string.split(";"))
        account = parts.get("AccountName")
        if arguments.get("account_name") not in (account, None):
            raise ConfigError(
                f"The account {arguments['account_name']} is asked for, and AZURE_STORAGE_CONNECTION_STRING leads to "
                f"{account}: unset it, or leave the account out of the URI."
            )
        host = f"{account}.blob.{parts.get('EndpointSuffix', 'core.windows.net')}"
        return cls(
            account_name=account,
            account_key=parts.get("AccountKey"),
            sas_token=parts.get("SharedAccessSignature"),
            endpoint=parts.get("BlobEndpoint") or f"{parts.get('DefaultEndpointsProtocol', 'https')}://{host}",
        )

    @property
    def server(self) -> str:
        return self.endpoint or ""

    def credentials(self) -> FoundCredentials | None:
        if self.account_name is None:
            raise RefusedError(errno.EACCES, _NO_ACCOUNT)
        return None if self.account_key or self.sas_token or self.anonymous else _azure_credentials()

    def open(self, bucket: str, options: dict[str, Any]) -> Any:
        from obstore.store import AzureStore

        settings: dict[str, Any] = {
            "account_name": self.account_name,
            "account_key": self.account_key,
            "sas_key": self.sas_token,
            "endpoint": self.endpoint and self.endpoint.rstrip("/"),
            "skip_signature": self.anonymous,
        }
        config: Any = {name: value for name, value in settings.items() if value}
        return AzureStore(bucket, config=config, **options)


class MemoryCloud(Cloud):
    """The memory of this process, for tests and trials: every bucket is there, and empty at first."""

    def open(self, bucket: str, options: dict[str, Any]) -> Any:
        return _memory(bucket)


def azure_account(path: str) -> tuple[str, dict[str, str]]:
    """Return (path, arguments) of `container@account.dfs.core.windows.net/folder`, as Azure's tools write it."""
    first, slash, rest = path.partition("/")
    container, at, host = first.partition("@")
    return f"{container}{slash}{rest}", {"account_name": host.partition(".")[0]} if at else {}


@functools.cache
def _memory(_bucket: str) -> Any:
    from obstore.store import MemoryStore

    return MemoryStore()


@functools.cache
def _google_credentials() -> FoundCredentials:
    try:
        import google.auth
        from obstore.auth.google import GoogleCredentialProvider
    except ImportError as error:
        raise _missing("gs", "google-auth") from error
    provider: Callable[[], Any] = GoogleCredentialProvider(google.auth.default(scopes=_GOOGLE_SCOPES)[0])
    return FoundCredentials(provider)


@functools.cache
def _azure_credentials() -> FoundCredentials:
    try:
        from obstore.auth.azure import AzureCredentialProvider
    except ImportError as error:
        raise _missing("abfs", "azure-identity") from error
    return FoundCredentials(AzureCredentialProvider())


def _missing(scheme: str, package: str) -> LocationError:
    return LocationError(f"{scheme}:// needs the package {package}: pip install {package}.")
