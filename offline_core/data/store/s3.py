"""Amazon S3 and compatible servers.

PyArrow reads and lists; boto3 does the rest: conditional puts, multipart uploads, buckets, signed links. Both use the
credentials that boto3 finds.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import mimetypes
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO, Any

from pyarrow import fs
from pydantic import Field

from offline_core.data.store.cloud_errors import (
    NO_CREDENTIALS,
    UNUSABLE,
    NoBucketError,
    RefusedError,
    RemoteError,
    as_os_error,
    os_errors,
)
from offline_core.data.store.lease import LeasingStore
from offline_core.data.store.stores import LINK_SECONDS
from offline_core.errors import ConfigError
from offline_core.runtime.config import Config, parse

log = logging.getLogger(__name__)

CONNECT_SECONDS, REQUEST_SECONDS = 5.0, 15.0
READ_ATTEMPTS, WRITE_ATTEMPTS = 5, 8
"""Attempts of PyArrow and of boto3, which waits a 20th as long between them: both give up after some 8 and 3 seconds."""

CONFLICT_ATTEMPTS = 5
"""Attempts of a conditional put while another one is under way, up to 0.8 s apart."""

PART_BYTES = 16 * 2**20

_TRUE = ("1", "true", "yes")


class S3Settings(Config):
    """Where S3 is. Without credentials: it is sent to other processes and shown."""

    endpoint: str | None = Field(
        None, pattern=r"^https?://[^/\s@]+(/\S*)?$", description="URL of a server other than Amazon's, as http://minio:9000."
    )
    region: str | None = Field(None, description="None: the profile's.")
    profile: str | None = Field(None, description="Name in ~/.aws; None: what boto3 finds.")
    anonymous: bool = Field(False, description="Anonymous access.")
    path_style: bool | None = Field(
        None, description="endpoint/bucket instead of bucket.endpoint; None: if there is an endpoint."
    )
    create_bucket: bool = Field(False, description="Create a missing bucket when a folder is made in it, as steps do first.")

    @classmethod
    def of(cls, arguments: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> S3Settings:
        """Complete these arguments by the usual environment variables."""
        env = environment.get
        usual = {
            "endpoint": env("AWS_ENDPOINT_URL_S3") or env("AWS_ENDPOINT_URL"),
            "region": env("AWS_REGION") or env("AWS_DEFAULT_REGION"),
            "profile": env("AWS_PROFILE"),
            "anonymous": (env("AWS_NO_SIGN_REQUEST") or "").lower() in _TRUE,
        }
        if "@" in str((usual | dict(arguments))["endpoint"]):  # without repeating it: it would be in logs
            raise ConfigError("The endpoint of S3 has credentials in it: write it without them, and set them as variables.")
        return parse(cls, usual | dict(arguments))


@dataclass(frozen=True)
class S3Store(LeasingStore):
    """See `Store`. Paths are bucket/key."""

    settings: S3Settings

    @property
    def has_buckets(self) -> bool:
        return True

    @property
    def filesystem(self) -> fs.FileSystem:
        with _set_up():
            return _filesystem(self.settings, _credentials(self.settings))

    def put(self, path: str, data: bytes) -> None:
        self._ask("put_object", path, Body=data)

    @os_errors()
    def create(self, path: str, data: bytes) -> None:
        try:
            self._ask("put_object", path, Body=data, IfNoneMatch="*")
        except FileExistsError:
            # A retried put whose first answer was lost finds its own bytes.
            if self._ask("get_object", path)["Body"].read() != data:
                raise

    def delete(self, path: str) -> None:
        self._ask("delete_object", path)

    def make_folder(self, path: str) -> None:
        try:
            self._mark(path)
        except NoBucketError:
            if not self.settings.create_bucket:
                raise
            self._create_bucket(path.partition("/")[0])
            self._mark(path)

    def remove_empty_folder(self, path: str) -> None:
        selector = fs.FileSelector(path, recursive=True, allow_not_found=True)
        if self.filesystem.get_file_info(selector):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self.delete(f"{path.strip('/')}/")

    def _mark(self, folder: str) -> None:
        bucket, _, key = folder.strip("/").partition("/")
        if key:
            self.put(f"{bucket}/{key}/", b"")  # as PyArrow and Amazon's console mark a folder
        else:
            self._ask("list_objects_v2", bucket, MaxKeys=1)  # no folder to mark; a HEAD would not say what is wrong

    def put_file(self, file: IO[bytes], path: str) -> None:
        from boto3.s3.transfer import TransferConfig

        file.seek(0)
        config = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=4)
        self._ask("upload_fileobj", path, Fileobj=file, Config=config)  # in parts, all aborted if one fails
        file.close()

    def link(self, path: str) -> str | None:
        with _set_up():
            credentials = _credentials(self.settings)
            client = _client(self.settings)
        if credentials is None or credentials.token:  # unsigned, or a link with a session token in it
            return None
        bucket, _, key = path.partition("/")
        kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
        url: str = client.generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": key, "ResponseContentType": kind}, ExpiresIn=LINK_SECONDS
        )
        return url

    def abort_uploads(self, path: str, *, older_than_days: float) -> int:
        """See `Store`; unfinished uploads of killed writers cost money."""
        before = datetime.now(UTC) - timedelta(days=older_than_days)
        bucket, _, prefix = path.partition("/")
        found: dict[str, Any] = {}
        removed = 0
        while found.get("IsTruncated", True):
            markers = {name: found[f"Next{name}"] for name in ("KeyMarker", "UploadIdMarker") if found.get(f"Next{name}")}
            found = self._ask("list_multipart_uploads", bucket, Prefix=prefix and f"{prefix}/", **markers)
            for upload in found.get("Uploads", []):
                if upload["Initiated"] < before:
                    self._ask("abort_multipart_upload", f"{bucket}/{upload['Key']}", UploadId=upload["UploadId"])
                    removed += 1
        return removed

    def _create_bucket(self, bucket: str) -> None:
        region = _session(self.settings).region_name
        elsewhere = {} if region in (None, "us-east-1") else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        with contextlib.suppress(FileExistsError):
            self._ask("create_bucket", bucket, **elsewhere)

    def _ask(self, operation: str, path: str, **arguments: Any) -> Any:
        """Call boto3, and raise its errors as a filesystem would."""
        bucket, _, key = path.partition("/")
        with _set_up():
            _credentials(self.settings)  # here, where an error is one of the configuration
            client = _client(self.settings)
        with os_errors():
            return getattr(client, operation)(Bucket=bucket, **({"Key": key} if key else {}), **arguments)


@contextlib.contextmanager
def _set_up() -> Iterator[None]:
    """Report errors before a request as those of the configuration: a missing file is one of this machine."""
    try:
        yield
    except RefusedError:
        raise
    except Exception as error:
        known = as_os_error(error)
        if isinstance(known, RemoteError | RefusedError):
            raise known from error
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        raise RefusedError(errno.EACCES, f"{UNUSABLE}: {text}") from error


def _credentials(settings: S3Settings) -> Any:
    """Return current credentials, refreshed before they expire; None for anonymous access."""
    if settings.anonymous:
        return None
    found = _session(settings).get_credentials()
    if found is None:
        raise RefusedError(errno.EACCES, NO_CREDENTIALS)
    return found.get_frozen_credentials()


@functools.lru_cache(maxsize=16)
def _filesystem(settings: S3Settings, credentials: Any) -> fs.S3FileSystem:
    endpoint = _endpoint(settings)
    scheme, _, host = (endpoint or "https://").partition("://")
    return fs.S3FileSystem(
        endpoint_override=host.rstrip("/") or None,
        scheme=scheme,
        region=_session(settings).region_name,
        access_key=credentials and credentials.access_key,
        secret_key=credentials and credentials.secret_key,
        session_token=credentials and credentials.token,
        anonymous=settings.anonymous,
        force_virtual_addressing=not _is_path_style(settings),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        tls_ca_file_path=os.environ.get("AWS_CA_BUNDLE"),
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=READ_ATTEMPTS),
    )


_CREATION = threading.Lock()
"""boto3 cannot make clients in parallel; made clients serve many threads."""


@functools.cache
def _client(settings: S3Settings) -> Any:
    from botocore import UNSIGNED
    from botocore.config import Config as BotoConfig

    config = BotoConfig(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=REQUEST_SECONDS,
        retries={"mode": "standard", "total_max_attempts": WRITE_ATTEMPTS},
        s3={"addressing_style": "path" if _is_path_style(settings) else "virtual"},
        signature_version=UNSIGNED if settings.anonymous else "s3v4",
    )
    endpoint = _endpoint(settings)  # outside the lock: it makes clients
    with _CREATION:
        client = _session(settings).client("s3", endpoint_url=endpoint, config=config)
    client.meta.events.register("needs-retry.s3", _tell_of_silence)
    client.meta.events.register("needs-retry.s3.PutObject", _wait_after_conflict)
    return client


def _wait_after_conflict(attempts: int, response: tuple[Any, dict[str, Any]] | None = None, **_: Any) -> float | None:
    """Return the seconds to wait before a conditional put that met another one is retried, which boto3 does not do itself."""
    code = response and response[1].get("Error", {}).get("Code")
    return 0.05 * 2**attempts if code == "ConditionalRequestConflict" and attempts < CONFLICT_ATTEMPTS else None


def _tell_of_silence(caught_exception: Exception | None = None, **_: Any) -> None:
    """Log each request without an answer: a run may wait for minutes."""
    from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

    if isinstance(caught_exception, ConnectTimeoutError | ReadTimeoutError):
        log.warning("An object store does not answer: %s", caught_exception)


def _is_path_style(settings: S3Settings) -> bool:
    return _endpoint(settings) is not None if settings.path_style is None else settings.path_style


@functools.cache
def _endpoint(settings: S3Settings) -> str | None:
    """Return the endpoint if it is not Amazon's. boto3 also reads it from a profile; PyArrow does not."""
    if settings.endpoint:
        return settings.endpoint
    from botocore.config import Config as BotoConfig

    with _CREATION:
        found, usual = (
            _session(settings).client("s3", config=BotoConfig(ignore_configured_endpoint_urls=ignored)).meta.endpoint_url
            for ignored in (None, True)
        )
    return None if found == usual else str(found)


@functools.cache
def _session(settings: S3Settings) -> Any:
    import boto3

    return boto3.Session(profile_name=settings.profile, region_name=settings.region)
