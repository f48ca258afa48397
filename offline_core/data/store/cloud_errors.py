"""Errors of object stores' clients as `OSError`s with a number, as a filesystem would raise them.

botocore and Azure raise classes, PyArrow raises texts, gcsfs both. The answer to a HEAD has no body with a reason: the message
then lists the possible ones.
"""

from __future__ import annotations

import contextlib
import errno
import platform
import re
import socket
from collections.abc import Iterator

from offline_core.errors import OfflineError

_OTHER_REGION = "the bucket is in another region: set AWS_REGION"
_REFUSALS = {
    "AccessDenied": "access denied: ask for the permission, or choose another location",
    "AccountProblem": "the account has a problem: look into its console",
    "AuthorizationHeaderMalformed": _OTHER_REGION,
    "ExpiredToken": "the session token has expired: log in again",
    "IllegalLocationConstraintException": _OTHER_REGION,
    "InvalidAccessKeyId": "the access key does not exist: check AWS_ACCESS_KEY_ID or AWS_PROFILE",
    "InvalidBucketName": "the bucket's name is invalid: correct it",
    "InvalidToken": "the session token is invalid: check AWS_SESSION_TOKEN, or log in again",
    "PermanentRedirect": _OTHER_REGION,
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it",
    "SignatureDoesNotMatch": "the secret key does not match the access key: check AWS_SECRET_ACCESS_KEY or AWS_PROFILE",
}
"""Reason and remedy for an answer of S3, by its code."""

_UNSAID = {
    301: _REFUSALS["PermanentRedirect"],
    400: "the server refused the request without a reason: check AWS_REGION, the bucket's name, and whether the session "
    "token has expired",
    403: "access denied without a reason: check the permission, AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, and this machine's clock",
}
"""Possible reasons for an answer of S3 without a code, by its status."""

_ARROW = re.compile(
    r"AWS Error (?:([A-Z0-9_]+)|\[code \d+\])(?: \(HTTP status (\d+)\))? during (\w+) operation: (.*)", re.DOTALL
)
"""PyArrow's messages for errors of S3."""

_ARROW_CODE = re.compile(r"Unable to parse ExceptionName: (\w+) Message: ")
_ARROW_REGION = re.compile(r"the bucket is located in '([\w-]+)'")
_NO_TLS = re.compile(r"curlCode: (35|51|58|60|66|77|80|83|90|91),")
_UNTRUSTED = (
    "the TLS handshake failed, or the certificate is not trusted: check the endpoint (http or https), or set AWS_CA_BUNDLE to "
    "its certificate authority"
)

_EXISTS = {"PreconditionFailed", "BlobAlreadyExists", "BucketAlreadyExists", "BucketAlreadyOwnedByYou"}
_PASSING = {"ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown"}

_HERE = f"on {platform.node()}"
"""Each node of a cluster has its own credentials."""

NO_BUCKET = "the bucket does not exist: create it, or correct its name"

NO_CREDENTIALS = (
    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_NO_SIGN_REQUEST=true "
    f"for anonymous access, {_HERE}"
)

UNUSABLE = f"the client's configuration is invalid: correct it, {_HERE}"

_LOCAL_REASONS = {
    "NoCredentialsError": NO_CREDENTIALS,
    "DefaultCredentialsError": f"no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud, {_HERE}",
    "CredentialUnavailableError": f"no credentials were found: set AZURE_STORAGE_CONNECTION_STRING, or log in with az, {_HERE}",
    "ProfileNotFound": f"AWS_PROFILE names a profile that does not exist, {_HERE}",
    "PartialCredentialsError": "a part of the credentials is missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY both",
    "UnauthorizedSSOTokenError": "the session has expired: log in again, as with aws sso login",
    "SSOTokenLoadError": "not logged in: log in, as with aws sso login",
    "TokenRetrievalError": "the session has expired: log in again, as with aws sso login",
    "RefreshError": "the session has expired: log in again, as with gcloud auth login",
    "ParamValidationError": _REFUSALS["InvalidBucketName"],
    "SSLError": _UNTRUSTED,
}
"""Errors that clients raise before they send a request, by class."""

_CLIENTS = ("adlfs", "aiohttp", "azure", "boto3", "botocore", "gcsfs", "google", "requests", "s3transfer")

_NETWORK_ERRORS = {
    *("ConnectionError", "HTTPClientError", "IncompleteReadError", "ChecksumError", "FlexibleChecksumError"),  # botocore
    *("CredentialRetrievalError", "MetadataRetrievalError"),  # of the machine's role
    *("Timeout", "ChunkedEncodingError", "ContentDecodingError"),  # requests
    *("ServiceRequestError", "ServiceResponseError", "DecodeError"),  # Azure
    *("ClientConnectionError", "ClientPayloadError", "HttpError"),  # aiohttp and gcsfs
    *("TransportError", "TimeoutError", "ResponseError"),  # Google
}
"""Classes of clients' errors about the network, or about an answer without content."""

_NUMBERS: dict[type[OSError], int] = {
    FileExistsError: errno.EEXIST,
    FileNotFoundError: errno.ENOENT,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
}
"""Numbers for errors that are raised without one."""


class RefusedError(PermissionError):
    """The store refuses the request, or it cannot be sent; `strerror` says why and what to do."""


class NoBucketError(FileNotFoundError):
    """The bucket or container does not exist; `strerror` says what to do."""


class RemoteError(OSError):
    """Any other error of a store or of the network; `errno` says whether it may pass."""

    def __str__(self) -> str:
        return str(self.strerror)


@contextlib.contextmanager
def os_errors() -> Iterator[None]:
    """Turn whatever a client raises in the block, or the decorated function, into an `OSError` with a number."""
    try:
        yield
    except (OfflineError, MemoryError):
        raise
    except Exception as error:
        known = as_os_error(error)
        if known is None or known.errno is None:
            number = next((number for kind, number in _NUMBERS.items() if isinstance(error, kind)), None)
            text = f"{type(error).__name__}: {error}"
            known = RemoteError(errno.EPROTO, text) if number is None else OSError(number, str(error))
        if known is error:
            raise
        raise known from error


def as_os_error(error: Exception) -> OSError | None:
    """Return the error as an `OSError` with a number; None if no store raised it."""
    if type(error).__module__.partition(".")[0] in _CLIENTS:  # first, as some of them are OSErrors
        return _of_client(error)
    if type(error) is OSError and error.errno is None:
        return _of_arrow(error)
    if isinstance(error, TimeoutError | ConnectionError | socket.gaierror) and (error.errno or 0) <= 0:
        return RemoteError(errno.ETIMEDOUT, str(error) or "no answer in time")
    return error if isinstance(error, OSError) else None


def _of_client(error: Exception) -> OSError:
    name = type(error).__name__
    passes = _passes(error)
    if name in _LOCAL_REASONS and not (name == "RefreshError" and passes):
        return RefusedError(errno.EACCES, _LOCAL_REASONS[name])
    if isinstance(error, OSError) and (error.errno or 0) > 0:  # an unresolved host name has a negative one
        return error
    code, status = _code_and_status(error)
    if name == "ClientAuthenticationError" and not status:  # Azure's client found no credentials
        return RefusedError(errno.EACCES, _LOCAL_REASONS["CredentialUnavailableError"])
    if not (code or status or passes):
        return RefusedError(errno.EACCES, f"{UNUSABLE}: {error}")
    return _of_answer(code, status, str(error), region=_region(error))


def _passes(error: BaseException) -> bool:
    """Whether an error without an answer is the network's; all others are wrong configurations of this machine."""
    if getattr(error, "kwargs", {}).get("provider") == "custom-process":  # botocore's credential_process
        return False
    if getattr(error, "retryable", False) or _NETWORK_ERRORS & {kind.__name__ for kind in type(error).__mro__}:
        return True
    return error.__cause__ is not None and _passes(error.__cause__)  # google.auth, where a machine's role is unavailable


def _of_arrow(error: OSError) -> OSError | None:
    found = _ARROW.search(str(error))
    if found is None:
        return RefusedError(errno.EACCES, _REFUSALS["AccessDenied"]) if str(error).startswith("Forbidden") else None
    name, status, operation, said = found.groups()
    said = said.strip() or "no reason was given"
    if name == "NETWORK_CONNECTION":
        _, _, details = said.rpartition("Details: ")
        untrusted = RefusedError(errno.EACCES, f"{_UNTRUSTED} ({details})")
        return untrusted if _NO_TLS.search(said) else RemoteError(errno.ETIMEDOUT, details)
    if name is None:
        return RemoteError(errno.EPROTO, f"{said} ({operation})")
    code = _ARROW_CODE.search(said)
    region = _ARROW_REGION.search(said)
    if "No response body" in said and (unsaid := _UNSAID.get(403 if name == "ACCESS_DENIED" else int(status or 0))):
        if region is not None:
            return _of_answer("PermanentRedirect", 301, said, region=region[1])
        return RefusedError(errno.EACCES, unsaid)
    spelled = code[1] if code else _spelled(name)
    return _of_answer(spelled, int(status or 0), f"{said} ({spelled} in {operation})", region=region[1] if region else "")


def _spelled(name: str) -> str:
    """Return a code as S3 spells it: PyArrow turns NoSuchBucket into NO_SUCH_BUCKET."""
    plain = name.replace("_", "").lower()
    known = (*_REFUSALS, *_PASSING, "NoSuchBucket", "NoSuchKey")
    return next((code for code in known if code.lower() == plain), name)


def _of_answer(code: str, status: int, text: str, *, region: str = "") -> OSError:
    if code in _REFUSALS:
        reason = _REFUSALS[code]
        if reason is _OTHER_REGION and region:
            reason = f"the bucket is in the region {region}: set AWS_REGION"
        return RefusedError(errno.EACCES, f"{reason} ({code})")
    if code in ("NoSuchBucket", "ContainerNotFound"):
        return NoBucketError(errno.ENOENT, NO_BUCKET)
    if code in _EXISTS or status == 412:
        return FileExistsError(errno.EEXIST, "exists already")
    if code == "NoSuchKey" or status == 404:
        return FileNotFoundError(errno.ENOENT, "does not exist")
    if status == 301:
        return RefusedError(errno.EACCES, f"{_OTHER_REGION} (301)")
    if status in (401, 403):
        return RefusedError(errno.EACCES, f"{_REFUSALS['AccessDenied']} ({status})")
    if 400 <= status < 500 and status not in (408, 429) and code not in _PASSING:
        return RemoteError(errno.EPROTO, text)
    return RemoteError(errno.ETIMEDOUT, text)


def _code_and_status(error: Exception) -> tuple[str, int]:
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return str(response.get("Error", {}).get("Code", "")), int(status)
    code = str(getattr(error, "error_code", "") or "")  # Azure
    statuses = [str(getattr(error, name, "")) for name in ("status_code", "status", "code")]
    return code, next((int(status) for status in statuses if status.isdigit()), 0)


def _region(error: Exception) -> str:
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return ""
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return str(response.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region") or "")
