"""What clients of object stores raise, as what a filesystem would raise.

Each has its own ways: botocore and Azure have classes, PyArrow has texts, gcsfs has both. Whoever catches an `OSError` with
a number from here need not know them. A HEAD has no body that could say why it was refused; then we say what it may be.
"""

from __future__ import annotations

import contextlib
import errno
import platform
import re
import socket
from collections.abc import Iterator

from offline_core.errors import OfflineError

_ELSEWHERE = "it is in another region: set AWS_REGION"
_REFUSALS = {
    "AccessDenied": "who we are there may not do that: ask for the permission, or choose another place",
    "AccountProblem": "there is a problem with the account: look into its console",
    "AuthorizationHeaderMalformed": _ELSEWHERE,
    "ExpiredToken": "the session's token has expired: log in again",
    "IllegalLocationConstraintException": _ELSEWHERE,
    "InvalidAccessKeyId": "there is no such key: check AWS_ACCESS_KEY_ID or AWS_PROFILE",
    "InvalidBucketName": "no bucket can have that name: correct it",
    "InvalidToken": "the session's token is wrong: check AWS_SESSION_TOKEN, or log in again",
    "PermanentRedirect": _ELSEWHERE,
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it",
    "SignatureDoesNotMatch": "the secret does not fit the key: check AWS_SECRET_ACCESS_KEY or AWS_PROFILE",
}
"""What an answer of S3 means, by its code, and what to do about it."""

_UNSAID = {
    301: _REFUSALS["PermanentRedirect"],
    400: "it wants nothing to do with us, and does not say why: check AWS_REGION, the bucket's name, and whether the session's "
    "token has expired",
    403: "who we are there may not do that, or we are not who we say: check the permission, AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY, AWS_PROFILE, and this machine's clock",
}
"""What an answer of S3 that has no code may mean, by its status, and what to do about it."""

_ARROW = re.compile(
    r"AWS Error (?:([A-Z0-9_]+)|\[code \d+\])(?: \(HTTP status (\d+)\))? during (\w+) operation: (.*)", re.DOTALL
)
"""How PyArrow tells of errors of S3."""

_ARROW_CODE = re.compile(r"Unable to parse ExceptionName: (\w+) Message: ")
_ARROW_REGION = re.compile(r"the bucket is located in '([\w-]+)'")
_NO_TLS = re.compile(r"curlCode: (35|51|58|60|66|77|80|83|90|91),")
_UNTRUSTED = (
    "no TLS is spoken there, or its certificate is not to be trusted: check the endpoint (http or https), or name who "
    "certifies it in AWS_CA_BUNDLE"
)

_EXISTS = {"PreconditionFailed", "BlobAlreadyExists", "BucketAlreadyExists", "BucketAlreadyOwnedByYou"}
_PASSING = {"ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown"}

_HERE = f"on {platform.node()}"
"""Nodes of a cluster have credentials of their own, or lack them."""

NO_BUCKET = "there is no such bucket: create it, or correct its name"

NO_CREDENTIALS = (
    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_NO_SIGN_REQUEST=true "
    f"to ask as nobody, {_HERE}"
)

UNUSABLE = f"what its client finds configured cannot work: correct it, {_HERE}"

_LOCAL_REASONS = {
    "NoCredentialsError": NO_CREDENTIALS,
    "DefaultCredentialsError": f"no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud, {_HERE}",
    "CredentialUnavailableError": f"no credentials were found: set AZURE_STORAGE_CONNECTION_STRING, or log in with az, {_HERE}",
    "ProfileNotFound": f"AWS_PROFILE names a profile that is not there, {_HERE}",
    "PartialCredentialsError": "a part of the credentials is missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY both",
    "UnauthorizedSSOTokenError": "the session has expired: log in again, as with aws sso login",
    "SSOTokenLoadError": "nobody is logged in: log in, as with aws sso login",
    "TokenRetrievalError": "the session has expired: log in again, as with aws sso login",
    "RefreshError": "the session has expired: log in again, as with gcloud auth login",
    "ParamValidationError": _REFUSALS["InvalidBucketName"],
    "SSLError": _UNTRUSTED,
}
"""What clients find out before they ask, by the class of the error."""

_CLIENTS = ("adlfs", "aiohttp", "azure", "boto3", "botocore", "gcsfs", "google", "requests", "s3transfer")

_ON_THE_WAY = {
    *("ConnectionError", "HTTPClientError", "IncompleteReadError", "ChecksumError", "FlexibleChecksumError"),  # botocore
    *("CredentialRetrievalError", "MetadataRetrievalError"),  # of the machine's role
    *("Timeout", "ChunkedEncodingError", "ContentDecodingError"),  # requests
    *("ServiceRequestError", "ServiceResponseError", "DecodeError"),  # Azure
    *("ClientConnectionError", "ClientPayloadError", "HttpError"),  # aiohttp and gcsfs
    *("TransportError", "TimeoutError", "ResponseError"),  # Google
}
"""Classes of clients' errors that tell of the way to the store, or of an answer that says nothing."""

_NUMBERS: dict[type[OSError], int] = {
    FileExistsError: errno.EEXIST,
    FileNotFoundError: errno.ENOENT,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
}
"""Of errors that are raised without one."""


class RefusedError(PermissionError):
    """The store does not let us; `strerror` says why and what to do."""


class NoBucketError(FileNotFoundError):
    """There is no such bucket or container; `strerror` says what to do."""


class AnswerError(OSError):
    """What a store said, or the way to it; `errno` says whether it may pass."""

    def __str__(self) -> str:
        return str(self.strerror)


@contextlib.contextmanager
def os_errors() -> Iterator[None]:
    """What leaves the block, or the function so decorated, is an `OSError` with a number, whatever a client raised."""
    try:
        yield
    except (OfflineError, MemoryError):
        raise
    except Exception as error:
        known = as_os_error(error)
        if known is None or known.errno is None:
            number = next((number for kind, number in _NUMBERS.items() if isinstance(error, kind)), None)
            told = f"{type(error).__name__}: {error}"
            known = AnswerError(errno.EREMOTEIO, told) if number is None else OSError(number, str(error))
        if known is error:
            raise
        raise known from error


def as_os_error(error: Exception) -> OSError | None:
    """The error with a number that says what it is; None if it comes from no store."""
    if type(error).__module__.partition(".")[0] in _CLIENTS:  # before it is seen that some of them are OSErrors, too
        return _of_client(error)
    if type(error) is OSError and error.errno is None:
        return _of_arrow(error)
    if isinstance(error, TimeoutError | ConnectionError | socket.gaierror) and (error.errno or 0) <= 0:
        return AnswerError(errno.ETIMEDOUT, str(error) or "there was no answer in time")
    return error if isinstance(error, OSError) else None


def _of_client(error: Exception) -> OSError:
    name = type(error).__name__
    passes = _passes(error)
    if name in _LOCAL_REASONS and not (name == "RefreshError" and passes):
        return RefusedError(errno.EACCES, _LOCAL_REASONS[name])
    if isinstance(error, OSError) and (error.errno or 0) > 0:  # those of names that cannot be resolved are negative
        return error
    code, status = _code_and_status(error)
    if name == "ClientAuthenticationError" and not status:  # Azure's client found nobody to ask as
        return RefusedError(errno.EACCES, _LOCAL_REASONS["CredentialUnavailableError"])
    if not (code or status or passes):
        return RefusedError(errno.EACCES, f"{UNUSABLE}: {error}")
    return _of_answer(code, status, str(error), region=_region(error))


def _passes(error: BaseException) -> bool:
    """Whether an error that is no answer is one of the network: all others are here, and stay until something is mended."""
    if getattr(error, "kwargs", {}).get("provider") == "custom-process":  # botocore's credential_process
        return False
    if getattr(error, "retryable", False) or _ON_THE_WAY & {kind.__name__ for kind in type(error).__mro__}:
        return True
    return error.__cause__ is not None and _passes(error.__cause__)  # google.auth, where a machine's role cannot be asked for


def _of_arrow(error: OSError) -> OSError | None:
    found = _ARROW.search(str(error))
    if found is None:
        return RefusedError(errno.EACCES, _REFUSALS["AccessDenied"]) if str(error).startswith("Forbidden") else None
    name, status, operation, said = found.groups()
    said = said.strip() or "no reason was given"
    if name == "NETWORK_CONNECTION":
        _, _, details = said.rpartition("Details: ")
        untrusted = RefusedError(errno.EACCES, f"{_UNTRUSTED} ({details})")
        return untrusted if _NO_TLS.search(said) else AnswerError(errno.ETIMEDOUT, details)
    if name is None:
        return AnswerError(errno.EREMOTEIO, f"{said} ({operation})")
    code = _ARROW_CODE.search(said)
    region = _ARROW_REGION.search(said)
    if "No response body" in said and (unsaid := _UNSAID.get(403 if name == "ACCESS_DENIED" else int(status or 0))):
        if region is not None:
            return _of_answer("PermanentRedirect", 301, said, region=region[1])
        return RefusedError(errno.EACCES, unsaid)
    spelled = code[1] if code else _spelled(name)
    return _of_answer(spelled, int(status or 0), f"{said} ({spelled} in {operation})", region=region[1] if region else "")


def _spelled(name: str) -> str:
    """A code as S3 spells it: PyArrow makes NO_SUCH_BUCKET of NoSuchBucket."""
    plain = name.replace("_", "").lower()
    known = (*_REFUSALS, *_PASSING, "NoSuchBucket", "NoSuchKey")
    return next((code for code in known if code.lower() == plain), name)


def _of_answer(code: str, status: int, text: str, *, region: str = "") -> OSError:
    if code in _REFUSALS:
        reason = _REFUSALS[code]
        if reason is _ELSEWHERE and region:
            reason = f"it is in the region {region}: set AWS_REGION"
        return RefusedError(errno.EACCES, f"{reason} ({code})")
    if code in ("NoSuchBucket", "ContainerNotFound"):
        return NoBucketError(errno.ENOENT, NO_BUCKET)
    if code in _EXISTS or status == 412:
        return FileExistsError(errno.EEXIST, "exists already")
    if code == "NoSuchKey" or status == 404:
        return FileNotFoundError(errno.ENOENT, "not there")
    if status == 301:
        return RefusedError(errno.EACCES, f"{_ELSEWHERE} (301)")
    if status in (401, 403):
        return RefusedError(errno.EACCES, f"{_REFUSALS['AccessDenied']} ({status})")
    if 400 <= status < 500 and status not in (408, 429) and code not in _PASSING:
        return AnswerError(errno.EREMOTEIO, text)
    return AnswerError(errno.ETIMEDOUT, text)


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
