"""What clients say, in one language."""

from __future__ import annotations

import errno
import pickle
import socket

import pytest
import requests
from aiohttp.client_exceptions import ClientConnectorDNSError, ClientPayloadError, InvalidURL
from aiohttp.client_reqrep import ConnectionKey
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError, ServiceResponseError
from botocore import exceptions as boto
from google.auth.exceptions import RefreshError, TransportError
from obstore import exceptions as obstore

from offline_core.data.store.storage_errors import (
    NoBucketError,
    RefusedError,
    RemoteError,
    as_os_error,
    obstore_errors,
    os_errors,
    storage_errors,
)
from offline_core.errors import ConfigError, StorageError, StorageUnavailableError


def body(code: str) -> str:
    return f"<Error><Code>{code}</Code><Message>No.</Message></Error>"


HEAD = "When reading information for key 'runs/x' in bucket 'b': AWS Error {} during HeadObject operation: {}"
LIST = "When listing objects under key 'runs/x/' in bucket 'b': AWS Error {} during ListObjectsV2 operation: {}"
NO_BODY = "No response body."

ARROW = {
    HEAD.format("ACCESS_DENIED", NO_BODY): (RefusedError, "access denied"),
    HEAD.format("UNKNOWN (HTTP status 400)", NO_BODY): (RemoteError, "No response body"),
    HEAD.format("UNKNOWN (HTTP status 503)", NO_BODY): (RemoteError, "No response body"),
    LIST.format("NO_SUCH_BUCKET", "No."): (NoBucketError, "the bucket does not exist"),
    LIST.format("SLOW_DOWN", "No."): (RemoteError, "No. (SlowDown)"),
    LIST.format("[code 138]", "Not so."): (RemoteError, "Not so. ([code 138])"),
    LIST.format("NETWORK_CONNECTION", "curlCode: 7, No; Details: Failed to connect to h:1"): (
        RemoteError,
        "Failed to connect to h:1",
    ),
}
MAY_PASS = ("503", "SLOW_DOWN", "curlCode: 7", "code 138")


@pytest.mark.parametrize("text", ARROW)
def test_texts_of_pyarrow(text: str) -> None:
    """Of its own client of S3, which users may name or give."""
    kind, told = ARROW[text]
    found = as_os_error(OSError(text))
    assert type(found) is kind and told in str(found.strerror)
    passes = any(sign in text for sign in MAY_PASS)
    with pytest.raises(StorageError, match=r"Cannot read s3://b/x") as caught, storage_errors("read", "s3://b/x"):
        raise OSError(text)
    assert isinstance(caught.value, StorageUnavailableError) == passes
    assert "Errno" not in str(caught.value)


ANSWER = """Generic S3 error: Error performing GET http://h:1/b/x in 4ms - Server returned non-2xx status code: {status}: {body}

Debug source:
RetryError(RetryErrorImpl {{ uri: Some(http://h:1/b/x,), inner: Status {{ status: {status}, body: Some("{body}",), }} }})"""
REGION = "<Error><Code>AuthorizationHeaderMalformed</Code><Message>No.</Message><Region>eu-west-1</Region></Error>"
NETWORK = "Debug source:\nuri: Some(https://h:1/b/x,), inner: Http(HttpError {{ kind: {kind}, source: {source} }})"

OBSTORE: list[tuple[Exception, type[OSError], str, bool]] = [
    (obstore.PermissionDeniedError(ANSWER.format(status=403, body="")), RefusedError, "access denied without a reason", False),
    (obstore.GenericError(ANSWER.format(status=400, body="")), RefusedError, "without a reason: check AWS_REGION", False),
    (
        obstore.GenericError(ANSWER.format(status=400, body=REGION)),
        RefusedError,
        "in the region eu-west-1: set AWS_REGION",
        False,
    ),
    (obstore.GenericError(ANSWER.format(status=400, body=body("ExpiredToken"))), RefusedError, "expired: log in again", False),
    (obstore.GenericError(ANSWER.format(status=400, body=body("TooLarge"))), RemoteError, "answers 400 No. (TooLarge)", False),
    (obstore.GenericError(ANSWER.format(status=503, body="")), RemoteError, "http://h:1 answers 503", True),
    (obstore.GenericError(ANSWER.format(status=429, body="")), RemoteError, "http://h:1 answers 429", True),
    (FileNotFoundError(ANSWER.format(status=404, body=body("NoSuchBucket"))), NoBucketError, "bucket does not exist", False),
    (FileNotFoundError(ANSWER.format(status=404, body="")), FileNotFoundError, "does not exist", False),
    (FileNotFoundError("No data in memory found. Location: nope"), FileNotFoundError, "does not exist", False),
    (obstore.AlreadyExistsError(ANSWER.format(status=412, body="")), FileExistsError, "exists already", False),
    (
        obstore.AlreadyExistsError(ANSWER.format(status=409, body=body("ConditionalRequestConflict"))),
        RemoteError,
        "ConditionalRequestConflict",
        True,
    ),
    (
        obstore.GenericError("Received redirect\n\ninner: BareRedirect"),
        RefusedError,
        "in another region: set AWS_REGION",
        False,
    ),
    (obstore.GenericError(NETWORK.format(kind="Connect", source="Os")), RemoteError, "could not connect to https://h:1", True),
    (obstore.GenericError(NETWORK.format(kind="Timeout", source="")), RemoteError, "no answer in time from https://h:1", True),
    (obstore.GenericError(NETWORK.format(kind="Interrupted", source="")), RemoteError, "broke off to https://h:1", True),
    (
        obstore.GenericError(NETWORK.format(kind="Connect", source="InvalidCertificate(UnknownIssuer)")),
        RefusedError,
        "not trusted: check the endpoint",
        False,
    ),
    (obstore.InvalidPathError('Error parsing Path "a//b"'), RefusedError, "rename or delete it", False),
    (obstore.GenericError("missing region"), RefusedError, "is invalid: correct it", False),
]


@pytest.mark.parametrize(("error", "kind", "told", "passes"), OBSTORE, ids=lambda value: type(value).__name__)
def test_errors_of_obstore(error: Exception, kind: type[OSError], told: str, passes: bool) -> None:
    with pytest.raises(OSError) as caught, obstore_errors():
        raise error
    assert type(caught.value) is kind and told in str(caught.value.strerror)
    with pytest.raises(StorageError) as raised, storage_errors("write", "s3://b/x"):
        raise caught.value
    assert raised.value.may_pass == passes


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


def of_cause(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


OTHERS: list[tuple[Exception, bool]] = [
    (requests.exceptions.ProxyError(), True),
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
        (TimeoutError("later"), errno.ETIMEDOUT),
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
    if type(raised) is not OSError and isinstance(raised, OSError) and not isinstance(raised, TimeoutError):
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
