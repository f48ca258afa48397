"""Amazon S3 and compatible servers.

obstore reads, lists and writes. boto3 finds the credentials and the settings, and does what obstore has not: making a bucket,
marking a folder, and aborting unfinished uploads.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from offline_core.data.store import object_store
from offline_core.data.store.object_store import TRUE, Cloud, FoundCredentials, ObjectStore
from offline_core.data.store.storage_errors import NO_CREDENTIALS, NoBucketError, RefusedError, os_errors, set_up_errors
from offline_core.errors import ConfigError
from offline_core.runtime.config import parse

_HOST = re.compile(r"[a-z0-9][a-z0-9-]*")
"""Of a bucket that can be part of a server's name: no certificate is for names with more dots. boto3 does the same."""

_KEPT = timedelta(minutes=6)
"""How long credentials are kept; boto3 renews those of roles long before they expire."""


class S3Settings(Cloud):
    """Where S3 is. Without credentials: it is sent to other processes and shown."""

    endpoint: str | None = Field(
        None, pattern=r"^https?://[^/\s@]+(/\S*)?$", description="URL of a server other than Amazon's, as http://minio:9000."
    )
    region: str | None = Field(None, description="None: the profile's.")
    profile: str | None = Field(None, description="Name in ~/.aws; None: what boto3 finds.")
    path_style: bool | None = Field(
        None, description="endpoint/bucket instead of bucket.endpoint; None: if there is an endpoint."
    )
    create_bucket: bool = Field(False, description="Create a missing bucket when a folder is made in it, as steps do first.")

    @classmethod
    def of(cls, arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Self:
        """Complete these arguments by the usual environment variables."""
        env = environment.get
        usual = {
            "endpoint": env("AWS_ENDPOINT_URL_S3") or env("AWS_ENDPOINT_URL"),
            "region": env("AWS_REGION") or env("AWS_DEFAULT_REGION"),
            "profile": env("AWS_PROFILE"),
            "anonymous": (env("AWS_NO_SIGN_REQUEST") or "").lower() in TRUE,
        }
        if "@" in str((usual | dict(arguments))["endpoint"]):  # without repeating it: it would be in logs
            raise ConfigError("The endpoint of S3 has credentials in it: write it without them, and set them as variables.")
        return parse(cls, usual | dict(arguments))

    @property
    def server(self) -> str:
        return _endpoint(self)[0]

    @property
    def is_path_style(self) -> bool:
        return _endpoint(self)[1] if self.path_style is None else self.path_style

    def credentials(self) -> FoundCredentials | None:
        return None if self.anonymous else _credentials(self)

    def authorities(self) -> bytes | None:
        bundle = _session(self)._session.get_config_variable("ca_bundle")
        return Path(bundle).read_bytes() if bundle else None

    def open(self, bucket: str, options: dict[str, Any]) -> Any:
        from obstore.store import S3Store as Client

        in_path = self.is_path_style or not _HOST.fullmatch(bucket)
        config: Any = {
            "aws_endpoint_url_s3": self.server if in_path else self.server.replace("://", f"://{bucket}.", 1),
            "region": _session(self).region_name or "us-east-1",
            "virtual_hosted_style_request": not in_path,
            "skip_signature": self.anonymous,
            "disable_bulk_delete": True,
        }
        return Client(bucket, config=config, **options)


@dataclass(frozen=True)
class S3Store(ObjectStore):
    """See `ObjectStore`."""

    settings: S3Settings

    def cloud(self) -> S3Settings:
        return self.settings

    def make_folder(self, path: str) -> None:
        try:
            self._mark(path)
        except NoBucketError:
            if not self.settings.create_bucket:
                raise
            self._create_bucket(path.partition("/")[0])
            self._mark(path)

    def remove_empty_folder(self, path: str) -> None:
        super().remove_empty_folder(path)
        self._unmark(path)

    def delete_folder(self, path: str) -> None:
        super().delete_folder(path)
        self._unmark(path)

    def _mark(self, folder: str) -> None:
        """Mark a folder as Amazon's console does, by an object whose name ends with a slash: obstore has no such names."""
        bucket, _, key = folder.strip("/").partition("/")
        if key:
            self._ask("put_object", bucket, Key=f"{key}/", Body=b"")
        else:
            self._ask("list_objects_v2", bucket, MaxKeys=1)  # no folder to mark; a HEAD would not say what is wrong

    def _unmark(self, folder: str) -> None:
        """Delete the marks of a folder and of those below it, when their files are deleted."""
        bucket, _, key = folder.strip("/").partition("/")
        more: dict[str, str] | None = {}
        while more is not None:
            page = self._ask("list_objects_v2", bucket, Prefix=f"{key}/", **more)
            for entry in page.get("Contents", []):
                if entry["Key"].endswith("/"):
                    self._ask("delete_object", bucket, Key=entry["Key"])
            more = {"ContinuationToken": page["NextContinuationToken"]} if page.get("IsTruncated") else None

    def link(self, path: str) -> str | None:
        with set_up_errors():
            find = self.settings.credentials()
            signs = find is not None and not find()["token"]  # which a link would contain
        return super().link(path) if signs else None

    def abort_uploads(self, path: str, *, older_than_days: float) -> int:
        """See `Store`; unfinished uploads of killed writers cost money."""
        before = datetime.now(UTC) - timedelta(days=older_than_days)
        bucket, _, prefix = path.partition("/")
        page: dict[str, Any] = {}
        removed = 0
        while page.get("IsTruncated", True):
            markers = {name: page[f"Next{name}"] for name in ("KeyMarker", "UploadIdMarker") if page.get(f"Next{name}")}
            page = self._ask("list_multipart_uploads", bucket, Prefix=prefix and f"{prefix}/", **markers)
            for upload in page.get("Uploads", []):
                if upload["Initiated"] < before:
                    self._ask("abort_multipart_upload", bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                    removed += 1
        return removed

    def _create_bucket(self, bucket: str) -> None:
        region = _session(self.settings).region_name
        elsewhere = {} if region in (None, "us-east-1") else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        with contextlib.suppress(FileExistsError):
            self._ask("create_bucket", bucket, **elsewhere)

    def _ask(self, operation: str, bucket: str, **arguments: Any) -> Any:
        """Call boto3."""
        with set_up_errors():
            if find := self.settings.credentials():
                find()
            client = _boto_client(self.settings, object_store.RETRY_SECONDS)
        with os_errors():
            return getattr(client, operation)(Bucket=bucket, **arguments)


@functools.cache
def _credentials(settings: S3Settings) -> FoundCredentials:
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = _session(settings)
    if session.get_credentials() is None:
        raise RefusedError(errno.EACCES, NO_CREDENTIALS)
    return FoundCredentials(Boto3CredentialProvider(session, ttl=_KEPT))


_CREATION = threading.Lock()
"""boto3 cannot make clients in parallel; made clients serve many threads."""


@functools.cache
def _boto_client(settings: S3Settings, retry_seconds: float) -> Any:
    from botocore import UNSIGNED
    from botocore.config import Config as BotoConfig

    config = BotoConfig(
        connect_timeout=object_store.CONNECT_SECONDS,
        read_timeout=object_store.ANSWER_SECONDS,
        retries={"mode": "standard", "total_max_attempts": 8 if retry_seconds else 1},
        s3={"addressing_style": "path" if settings.is_path_style else "virtual"},
        signature_version=UNSIGNED if settings.anonymous else "s3v4",
    )
    endpoint, is_own = _endpoint(settings)  # outside the lock: it makes clients
    with _CREATION:
        return _session(settings).client("s3", endpoint_url=endpoint if is_own else None, config=config)


@functools.cache
def _endpoint(settings: S3Settings) -> tuple[str, bool]:
    """Return (URL of the server, whether it is another than Amazon's), which boto3 also reads from a profile."""
    if settings.endpoint:
        return settings.endpoint.rstrip("/"), True
    from botocore.config import Config as BotoConfig

    with _CREATION:
        endpoint, usual = (
            _session(settings).client("s3", config=BotoConfig(ignore_configured_endpoint_urls=ignored)).meta.endpoint_url
            for ignored in (None, True)
        )
    return str(endpoint), endpoint != usual


@functools.cache
def _session(settings: S3Settings) -> Any:
    import boto3

    return boto3.Session(profile_name=settings.profile, region_name=settings.region)
