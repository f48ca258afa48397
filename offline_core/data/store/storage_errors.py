"""Errors of storage: those of object stores' clients as `OSError`s with a number, and all of them as `StorageError`s.

An `OSError` is what a filesystem would raise; a `StorageError` says what failed, where, and what to do.
What happened is told from the types of errors, from the status of an answer, and from the code that S3, Google and Azure give a
refusal. The answer to a HEAD has neither code nor text: the message then lists the possible reasons.
"""

from __future__ import annotations

import contextlib
import errno
import platform
import re
import socket
import tempfile
from collections.abc import Iterator

from offline_core.errors import OfflineError, StorageError, StorageUnavailableError, first_line

_OTHER_REGION = "the bucket is in another region: set AWS_REGION"
_NO_PERMISSION = "access denied: ask for the permission, or choose another location"
_REFUSALS = {
    "AccessDenied": _NO_PERMISSION,
    "AccountProblem": "the account has a problem: look into its console",
    "AuthenticationFailed": "access denied: check the account's key or token, and this machine's clock",
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
"""Reason and remedy by the code of a refusal."""

_UNSAID = {
    301: _OTHER_REGION,
    400: "the server refused the request without a reason: check AWS_REGION, the bucket's name, and whether the session "
    "token has expired",
    401: _NO_PERMISSION,
    403: "access denied without a reason: check the permission, the credentials (of S3 AWS_ACCESS_KEY_ID, "
    "AWS_SECRET_ACCESS_KEY and AWS_PROFILE), and this machine's clock",
}
"""Possible reasons for an answer without a code, by its status."""

_NO_BUCKET_CODES = {"NoSuchBucket", "ContainerNotFound"}
_EXISTS_CODES = {"PreconditionFailed", "BlobAlreadyExists", "BucketAlreadyExists", "BucketAlreadyOwnedByYou"}
_PASSING_CODES = {"ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown", "ContainerBeingDeleted"}

_HERE = f"on {platform.node()}"
"""Each node of a cluster has its own credentials."""

NO_BUCKET = "the bucket does not exist: create it, or correct its name"

NO_CREDENTIALS = (
    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_NO_SIGN_REQUEST=true "
    f"for anonymous access, {_HERE}"
)

UNUSABLE = f"the client's configuration is invalid: correct it, {_HERE}"

_UNTRUSTED = (
    "the TLS handshake failed, or the certificate is not trusted: check the endpoint (http or https), or set AWS_CA_BUNDLE to "
    "its certificate authority"
)

_LOCAL_REASONS = {
    "NoCredentialsError": NO_CREDENTIALS,
    "DefaultCredentialsError": f"no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud, {_HERE}",
    "ClientAuthenticationError": f"no credentials were found: set AZURE_STORAGE_CONNECTION_STRING, or log in with az, {_HERE}",
    "ProfileNotFound": f"AWS_PROFILE names a profile that does not exist, {_HERE}",
    "PartialCredentialsError": "a part of the credentials is missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY both",
    "UnauthorizedSSOTokenError": "the session has expired: log in again, as with aws sso login",
    "SSOTokenLoadError": "not logged in: log in, as with aws sso login",
    "TokenRetrievalError": "the session has expired: log in again, as with aws sso login",
    "RefreshError": "the session has expired: log in again, as with gcloud auth login",
    "ParamValidationError": _REFUSALS["InvalidBucketName"],
    "SSLError": _UNTRUSTED,
}
"""Errors that clients raise before they send a request, by the name of their class: only who uses a client imports it."""

_NETWORK_ERRORS = {
    *("ConnectionError", "HTTPClientError", "ChecksumError", "FlexibleChecksumError"),  # botocore
    *("CredentialRetrievalError", "MetadataRetrievalError"),  # of the machine's role
    *("Timeout", "ChunkedEncodingError", "ContentDecodingError", "TransportError"),  # requests, google.auth
    *("ServiceRequestError", "ServiceResponseError"),  # azure.identity
    *("ClientConnectionError", "ClientPayloadError"),  # aiohttp
}
"""Classes of clients' errors about the network, or about an answer without content."""

_CLIENTS = ("aiohttp", "azure", "boto3", "botocore", "google", "requests", "s3transfer")

_NUMBERS: dict[type[OSError], int] = {
    FileExistsError: errno.EEXIST,
    FileNotFoundError: errno.ENOENT,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
}
"""Numbers for errors that are raised without one."""

_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_REGION = re.compile(r"<Region>([\w-]+)</Region>")
_STATUS = re.compile(r"\bstatus: (\d{3})\b")
_SERVER = re.compile(r"\b(https?://[^/\s,]+)")
_NETWORK = re.compile(r"\bHttpError \{\s*kind: (\w+)")
"""What obstore says of an answer, or of the network if there is none: its errors carry them as text alone."""

_NETWORK_REASONS = {"Connect": "could not connect to", "Timeout": "no answer in time from"}

_TLS = re.compile(r"\bInvalid(Certificate|Message)\b")
"""Errors of Rust's TLS: a certificate that is not trusted, and a server that speaks none."""

_ARROW = re.compile(r"AWS Error ([A-Z_]+|\[code \d+\])(?: \(HTTP status (\d+)\))? during \w+ operation: (.*)", re.DOTALL)
"""Errors of PyArrow's own client of S3, which users may name or give as a filesystem: it raises texts alone."""

_ARROW_PASSING = {"NETWORK_CONNECTION", "INTERNAL_FAILURE", "SERVICE_UNAVAILABLE"}


_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space or choose another location.",
    errno.EDQUOT: "Your disk quota is used up: free some space or choose another location.",
    errno.EFBIG: "A file may not become so large here: choose another location, or raise the limit of the process (ulimit -f).",
    errno.EROFS: "Choose another location, or mount it for writing.",
    errno.ENOTDIR: "A file is where a folder has to be: choose another location or move it away.",
    errno.EEXIST: "A file is where a folder has to be: choose another location or move it away.",
}

_MAY_PASS = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.EINTR,
    errno.EIO,
    errno.ENETUNREACH,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


class RefusedError(PermissionError):
    """The store refuses the request, or it cannot be sent; `strerror` says why and what to do."""


class NoBucketError(FileNotFoundError):
    """The bucket or container does not exist; `strerror` says what to do."""


class RemoteError(OSError):
    """Any other error of a store or of the network; `errno` says whether it may pass."""

    def __str__(self) -> str:
        return str(self.strerror)


class ReplacedError(RemoteError):
    """A file was replaced by another one while it was read, so that its parts would not belong together."""


@contextlib.contextmanager
def storage_errors(action: str, uri: str) -> Iterator[None]:
    """Turn what filesystems raise into a `StorageError` that says what failed, where, and what to do."""
    try:
        yield
    except Exception as error:
        if (known := as_os_error(error)) is None:
            if not isinstance(error, OSError):
                raise
            known = error
        raise _storage_error(action, uri, known) from error


def _storage_error(action: str, uri: str, error: OSError) -> StorageError:
    tried, said = f"Cannot {action} {uri}", str(error).rstrip(".")
    remedy = _REMEDIES.get(error.errno or 0, "")
    if error.errno == errno.ENOSPC and "://" in uri:
        remedy = f"Files are written to {tempfile.gettempdir()} first, and that is full: free some space there, or set TMPDIR."
    match error:
        case NoBucketError() | RefusedError():
            message = f"{tried}: {error.strerror}."
        case FileNotFoundError():
            message = f"{tried}: it does not exist."
        case PermissionError():
            message = f"{tried}: permission denied. Choose another location or change its owner or mode."
        case OSError(errno=number) if number in _MAY_PASS:
            return StorageUnavailableError(f"{tried} now: {said}. Try again when the storage answers.", uri=uri)
        case _:
            message = f"{tried}: {said}. {remedy}".rstrip()
    return StorageError(message, uri=uri)


@contextlib.contextmanager
def os_errors() -> Iterator[None]:
    """Turn whatever a filesystem raises in the block, or the decorated function, into an `OSError` with a number."""
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


@contextlib.contextmanager
def obstore_errors() -> Iterator[None]:
    """Turn what obstore raises in the block into an `OSError` with a number."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise
        raise _of_obstore(error) from error
    except Exception as error:
        if not type(error).__module__.startswith(("obstore", "pyo3_object_store")):
            raise
        raise _of_obstore(error) from error


@contextlib.contextmanager
def set_up_errors() -> Iterator[None]:
    """Report errors before a request as those of the configuration: a missing file is one of this machine."""
    try:
        yield
    except (OfflineError, RefusedError):
        raise
    except Exception as error:
        known = as_os_error(error)
        if isinstance(known, RemoteError | RefusedError):
            raise known from error
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        raise RefusedError(errno.EACCES, f"{UNUSABLE}: {text}") from error


def as_os_error(error: Exception) -> OSError | None:
    """Return the error as an `OSError` with a number; None if no store raised it."""
    if type(error).__module__.partition(".")[0] in _CLIENTS:  # first, as some of them are OSErrors
        return _of_client(error)
    if type(error) is OSError and error.errno is None:
        match = _ARROW.search(str(error))
        return None if match is None else _of_arrow(*match.groups())
    if isinstance(error, TimeoutError | ConnectionError | socket.gaierror) and (error.errno or 0) <= 0:
        return RemoteError(errno.ETIMEDOUT, str(error) or "no answer in time")
    return error if isinstance(error, OSError) else None


def _of_obstore(error: Exception) -> OSError:
    from obstore.exceptions import AlreadyExistsError, InvalidPathError

    text = str(error)
    code, region, message, server, status, network = (
        match[1] if (match := part.search(text)) else "" for part in (_CODE, _REGION, _MESSAGE, _SERVER, _STATUS, _NETWORK)
    )
    if code or status:
        return _of_answer(code, int(status or 0), f"{server} answers {status} {message} ({code})", region=region)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "does not exist")
    if isinstance(error, AlreadyExistsError):
        return FileExistsError(errno.EEXIST, "exists already")
    if isinstance(error, InvalidPathError):
        return RefusedError(
            errno.EACCES, f"an object there has a name that is no path: rename or delete it ({first_line(error)})"
        )
    if "BareRedirect" in text:
        return _of_answer("", 301, text)
    if _TLS.search(text):
        return RefusedError(errno.EACCES, _UNTRUSTED)
    if network:
        return RemoteError(errno.ETIMEDOUT, f"{_NETWORK_REASONS.get(network, 'the connection broke off to')} {server}")
    return RefusedError(errno.EACCES, f"{UNUSABLE}: {first_line(error)}")


def _of_client(error: Exception) -> OSError:
    """Return an error of what finds credentials, of boto3, or of a filesystem of fsspec."""
    if (code := getattr(error, "response", None)) and isinstance(code, dict):  # botocore
        status = int(code.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        headers = code.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = code.get("Error", {}).get("Region") or headers.get("x-amz-bucket-region") or ""
        return _of_answer(str(code.get("Error", {}).get("Code", "")), status, str(error), region=str(region))
    name, passes = type(error).__name__, _passes(error)
    if name in _LOCAL_REASONS and not (name == "RefreshError" and passes):
        return RefusedError(errno.EACCES, _LOCAL_REASONS[name])
    if isinstance(error, OSError) and (error.errno or 0) > 0:  # an unresolved host name has a negative one
        return error
    return RemoteError(errno.ETIMEDOUT, str(error)) if passes else RefusedError(errno.EACCES, f"{UNUSABLE}: {error}")


def _passes(error: BaseException) -> bool:
    """Whether an error without an answer is the network's; all others are wrong configurations of this machine."""
    if getattr(error, "kwargs", {}).get("provider") == "custom-process":  # botocore's credential_process
        return False
    if getattr(error, "retryable", False) or _NETWORK_ERRORS & {kind.__name__ for kind in type(error).__mro__}:
        return True
    return error.__cause__ is not None and _passes(error.__cause__)  # google.auth, where a machine's role is unavailable


def _of_arrow(name: str, status: str | None, said: str) -> OSError:
    known = {code.upper(): code for code in (*_REFUSALS, *_NO_BUCKET_CODES, *_PASSING_CODES, "NoSuchKey")}
    code = known.get(name.replace("_", ""), name)
    return _of_answer(code, 503 if name in _ARROW_PASSING else int(status or 0), f"{said.strip()} ({code})")


def _of_answer(code: str, status: int, text: str, *, region: str = "") -> OSError:
    if code in _REFUSALS or (not code and status in _UNSAID):
        reason = _REFUSALS[code] if code else _UNSAID[status]
        if region and reason is _OTHER_REGION:
            reason = f"the bucket is in the region {region}: set AWS_REGION"
        return RefusedError(errno.EACCES, f"{reason} ({code or status})")
    if code in _NO_BUCKET_CODES:
        return NoBucketError(errno.ENOENT, NO_BUCKET)
    if code in _PASSING_CODES:
        return RemoteError(errno.ETIMEDOUT, text)
    if code in _EXISTS_CODES or status in (409, 412):
        return FileExistsError(errno.EEXIST, "exists already")
    if code == "NoSuchKey" or status == 404:
        return FileNotFoundError(errno.ENOENT, "does not exist")
    if status in (401, 403):
        return RefusedError(errno.EACCES, f"{_NO_PERMISSION} ({code})")
    return RemoteError(errno.EPROTO if 400 <= status < 500 and status not in (408, 429) else errno.ETIMEDOUT, text)
