"""What clients say, in one language."""

from __future__ import annotations

import errno
import pickle
import socket
from typing import Any

import pytest
import requests
from aiohttp.client_exceptions import ClientConnectorDNSError, ClientPayloadError, InvalidURL
from aiohttp.client_reqrep import ConnectionKey
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError, ServiceResponseError
from botocore import exceptions as boto
from google.auth.exceptions import RefreshError, TransportError

from offline_core.data.store.cloud_errors import NoBucketError, RefusedError, RemoteError, as_os_error, os_errors
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import ConfigError, StorageError, StorageUnavailableError

HEAD = "When reading information for key 'runs/x' in bucket 'b': AWS Error {} during HeadObject operation: {}"
LIST = "When listing objects under key 'runs/x/' in bucket 'b': AWS Error {} during ListObjectsV2 operation: {}"
NO_BODY = "No response body."
ELSEWHERE = "Looks like the configured region is 'us-east-1' while the bucket is located in 'eu-west-1'."

ARROW = {
    HEAD.format("ACCESS_DENIED", NO_BODY): (RefusedError, "access denied without a reason"),
    HEAD.format("UNKNOWN (HTTP status 400)", NO_BODY): (RefusedError, "without a reason: check AWS_REGION"),
    HEAD.format("UNKNOWN (HTTP status 400)", f"{NO_BODY} {ELSEWHERE}"): (
        RefusedError,
        "in the region eu-west-1: set AWS_REGION",
    ),
    HEAD.format("UNKNOWN (HTTP status 301)", NO_BODY): (RefusedError, "in another region: set AWS_REGION"),
    HEAD.format("UNKNOWN (HTTP status 503)", NO_BODY): (RemoteError, "No response body"),
    LIST.format("ACCESS_DENIED", "No."): (RefusedError, "ask for the permission"),
    LIST.format("NO_SUCH_BUCKET", "No."): (NoBucketError, "the bucket does not exist"),
    LIST.format("UNKNOWN (HTTP status 400)", "Unable to parse ExceptionName: ExpiredToken Message: No."): (
        RefusedError,
        "expired",
    ),
    LIST.format("SLOW_DOWN", "No."): (RemoteError, "No. (SlowDown in ListObjectsV2)"),
    LIST.format("[code 138]", "Not so."): (RemoteError, "Not so. (ListObjectsV2)"),
    LIST.format("NETWORK_CONNECTION", "curlCode: 7, No; Details: Failed to connect to h:1"): (
        RemoteError,
        "Failed to connect to h:1",
    ),
    LIST.format("NETWORK_CONNECTION", "curlCode: 60, No; Details: self-signed"): (RefusedError, "(self-signed)"),
    LIST.format("SERVICE_UNAVAILABLE", ""): (RemoteError, "no reason was given (SERVICE_UNAVAILABLE in ListObjectsV2)"),
    "Forbidden: https://storage.googleapis.com/b": (RefusedError, "ask for the permission"),
}
MAY_PASS = ("503", "SLOW_DOWN", "SERVICE_UNAVAILABLE", "curlCode: 7")


@pytest.mark.parametrize("text", ARROW)
def test_texts_of_pyarrow(text: str) -> None:
    kind, told = ARROW[text]
    found = as_os_error(OSError(text))
    assert type(found) is kind and told in str(found.strerror)
    passes = any(sign in text for sign in MAY_PASS)
    with pytest.raises(StorageError, match=r"Cannot read s3://b/x") as caught, storage_errors("read", "s3://b/x"):
        raise OSError(text)
    assert isinstance(caught.value, StorageUnavailableError) == passes
    assert "Errno" not in str(caught.value)


def answered(code: str, status: int, **error: str) -> boto.ClientError:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": {}}
    return boto.ClientError({"Error": {"Code": code, "Message": "No.", **error}, "ResponseMetadata": metadata}, "PutObject")


URL = {"endpoint_url": "http://h:1"}
BOTO: list[tuple[Exception, type[OSError], str, bool]] = [
    (answered("AccessDenied", 403), RefusedError, "ask for the permission", False),
    (answered("AuthorizationHeaderMalformed", 400, Region="eu-west-1"), RefusedError, "in the region eu-west-1", False),
    (answered("PreconditionFailed", 412), FileExistsError, "exists already", False),
    (answered("NoSuchKey", 404), FileNotFoundError, "does not exist", False),
    (answered("NoSuchBucket", 404), NoBucketError, "bucket does not exist", False),
    (answered("SlowDown", 503), RemoteError, "SlowDown", True),
    (answered("ConditionalRequestConflict", 409), RemoteError, "ConditionalRequestConflict", True),
    (answered("EntityTooLarge", 400), RemoteError, "EntityTooLarge", False),
    (boto.EndpointConnectionError(**URL), RemoteError, "http://h:1", True),
    (boto.ConnectTimeoutError(**URL, error="x"), RemoteError, "http://h:1", True),  # these three are OSErrors without a number
    (boto.ReadTimeoutError(**URL), RemoteError, "http://h:1", True),
    (boto.SSLError(**URL, error="x"), RefusedError, "not trusted", False),
    (boto.NoCredentialsError(), RefusedError, "no credentials were found", False),
    (boto.ProfileNotFound(profile="p"), RefusedError, "AWS_PROFILE", False),
    (boto.ConfigParseError(path="/h/.aws/config"), RefusedError, "is invalid: correct it", False),
    (boto.InvalidRegionError(region_name="eu west"), RefusedError, "eu west", False),
    (boto.InvalidConfigError(error_msg="no source_profile"), RefusedError, "no source_profile", False),
    (boto.CredentialRetrievalError(provider="custom-process", error_msg="helper: no"), RefusedError, "helper: no", False),
    (boto.CredentialRetrievalError(provider="iam-role", error_msg="no answer"), RemoteError, "no answer", True),
]


@pytest.mark.parametrize(("error", "kind", "told", "passes"), BOTO, ids=lambda value: type(value).__name__)
def test_errors_of_boto3(error: Exception, kind: type[OSError], told: str, passes: bool) -> None:
    found = as_os_error(error)
    assert type(found) is kind and told in str(found.strerror)
    with pytest.raises(StorageError) as caught, storage_errors("write", "s3://b/x"):
        raise error
    assert caught.value.may_pass == passes


class HttpError(Exception):
    """As gcsfs has it, which is not imported: it looks at variables then that tests set later."""

    __module__ = "gcsfs.retry"

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer["message"])
        self.code = answer["code"]


def of_cause(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


OTHERS: list[tuple[Exception, bool]] = [
    (HttpError({"code": 503, "message": "later"}), True),
    (HttpError({"code": 400, "message": "no"}), False),
    (requests.exceptions.ProxyError(), True),  # gcsfs makes it of a 502
    (requests.exceptions.InvalidURL("h:x"), False),
    (ServiceRequestError("Connection reset"), True),
    (ServiceResponseError("Connection broken"), True),
    (ClientPayloadError("not all came"), True),
    (InvalidURL("h:x"), False),
    (TransportError("no answer"), True),
    (RefreshError("503", retryable=True), True),
    (of_cause(RefreshError("x"), TransportError("no answer")), True),
    (RefreshError("invalid_grant"), False),
    (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), True),
]


@pytest.mark.parametrize(("error", "passes"), OTHERS, ids=lambda value: type(value).__name__)
def test_errors_of_others(error: Exception, passes: bool) -> None:
    """Those of the way there may pass, and all else that a client raises by itself is to be corrected."""
    with pytest.raises(StorageError) as caught, storage_errors("write", "gs://b/x"):
        raise error
    assert caught.value.may_pass == passes


@pytest.mark.parametrize(
    ("raised", "number"),
    [
        (HttpError({"code": 503, "message": "later"}), errno.ETIMEDOUT),
        (FileExistsError("b/x"), errno.EEXIST),
        (FileNotFoundError("b/x"), errno.ENOENT),
        (OSError("no number"), errno.EPROTO),
        (ValueError("Bad Request: b/x"), errno.EPROTO),
        (OSError(errno.ENOSPC, "full"), errno.ENOSPC),
    ],
)
def test_what_leaves_a_store_has_a_number(raised: Exception, number: int) -> None:
    with pytest.raises(OSError) as caught, os_errors():
        raise raised
    assert caught.value.errno == number
    if type(raised) is not OSError and isinstance(raised, OSError):
        assert type(caught.value) is type(raised)


def test_our_own_errors_leave_a_store_as_they_are() -> None:
    error = ConfigError("x")
    with pytest.raises(ConfigError) as caught, os_errors():
        raise error
    assert caught.value is error


def test_a_filesystem_s_own_errors_are_left_as_they_are() -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    assert as_os_error(error) is error
    assert as_os_error(ValueError("x")) is None
    assert as_os_error(OSError("Parquet magic bytes not found in footer")) is None


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError("reset by peer"), TimeoutError("slow")])
def test_what_asyncio_raises_has_no_number_and_may_pass(error: OSError) -> None:
    found = as_os_error(error)
    assert found is not None and found.errno == errno.ETIMEDOUT and str(found)


def test_errors_can_be_sent_to_another_process() -> None:
    for error in (RemoteError(errno.ETIMEDOUT, "slow"), RefusedError(errno.EACCES, "no"), NoBucketError(errno.ENOENT, "none")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.errno, copy.strerror) == (type(error), error.errno, error.strerror)


def test_a_name_that_cannot_be_resolved_may_pass() -> None:
    key = ConnectionKey("nowhere.invalid", 443, True, True, None, None, None)
    error = ClientConnectorDNSError(key, socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    with pytest.raises(StorageUnavailableError, match="Name or service not known"), storage_errors("read", "gs://b/x"):
        raise error


def test_missing_credentials_of_azure() -> None:
    found = as_os_error(ClientAuthenticationError("DefaultAzureCredential failed to retrieve a token\n" + "page\n" * 99))
    assert type(found) is RefusedError and "no credentials were found: set AZURE_STORAGE_CONNECTION_STRING" in found.strerror
