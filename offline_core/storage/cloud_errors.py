"""What clients of object stores raise, as what a filesystem would raise.

Each has its own ways: botocore and Azure have classes, PyArrow has texts, gcsfs has both. Whoever catches an `OSError` with
a number from here need not know them.
"""

from __future__ import annotations

import errno
import re

_REFUSALS = {
    "AccessDenied": "who we are there may not do that: ask for the permission, or choose another place",
    "AccountProblem": "there is a problem with the account: look into its console",
    "AuthorizationHeaderMalformed": "it is in another region: set AWS_REGION",
    "ExpiredToken": "the session's token has expired: log in again",
    "IllegalLocationConstraintException": "it is in another region: set AWS_REGION",
    "InvalidAccessKeyId": "there is no such key: check AWS_ACCESS_KEY_ID or AWS_PROFILE",
    "InvalidToken": "the session's token is wrong: check AWS_SESSION_TOKEN, or log in again",
    "PermanentRedirect": "it is in another region: set AWS_REGION",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it",
    "SignatureDoesNotMatch": "the secret does not fit the key: check AWS_SECRET_ACCESS_KEY or AWS_PROFILE",
}
"""What an answer of S3 means, by its code, and what to do about it."""

_ARROW = re.compile(r"AWS Error ([A-Z0-9_]+)(?: \(HTTP status (\d+)\))? during (\w+) operation")
"""How PyArrow tells of errors of S3."""

_EXISTS = {"PreconditionFailed", "BlobAlreadyExists", "BucketAlreadyExists", "BucketAlreadyOwnedByYou"}
_PASSING = {"ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown"}

NO_CREDENTIALS = (
    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or AWS_NO_SIGN_REQUEST=true "
    "to ask as nobody"
)

_LOCAL_REASONS = {
    "NoCredentialsError": NO_CREDENTIALS,
    "DefaultCredentialsError": "no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS, or log in with gcloud",
    "CredentialUnavailableError": "no credentials were found: set AZURE_STORAGE_CONNECTION_STRING, or log in with az",
    "ProfileNotFound": "AWS_PROFILE names a profile that is not there",
    "PartialCredentialsError": "a part of the credentials is missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY both",
    "UnauthorizedSSOTokenError": "the session has expired: log in again, as with aws sso login",
    "SSOTokenLoadError": "nobody is logged in: log in, as with aws sso login",
    "TokenRetrievalError": "the session has expired: log in again, as with aws sso login",
    "RefreshError": "the session has expired: log in again, as with gcloud auth login",
}
"""What clients find out before they ask, by the class of the error."""

_CLIENTS = ("adlfs", "aiohttp", "azure", "boto3", "botocore", "gcsfs", "google", "s3transfer")


class RefusedError(PermissionError):
    """The store does not let us; `strerror` says why and what to do."""


class NoBucketError(FileNotFoundError):
    """There is no such bucket or container; `strerror` says what to do."""


def as_os_error(error: Exception) -> OSError | None:
    """The error with a number that says what it is; None if it comes from no store."""
    if isinstance(error, OSError) and (error.errno is not None or type(error) is not OSError):
        return error
    if type(error) is OSError:
        return _of_arrow(error)
    if type(error).__module__.partition(".")[0] not in _CLIENTS:
        return None
    name = type(error).__name__
    if name in _LOCAL_REASONS:
        return RefusedError(errno.EACCES, _LOCAL_REASONS[name])
    return _of_answer(*_code_and_status(error), str(error))


def _of_arrow(error: OSError) -> OSError | None:
    found = _ARROW.search(str(error))
    if found is None:
        return OSError(errno.EACCES, str(error)) if str(error).startswith("Forbidden") else None
    name, status, operation = found.groups()
    camel = "".join(part.capitalize() for part in name.split("_"))
    code = next((known for known in (*_REFUSALS, "NoSuchBucket", "NoSuchKey") if known.lower() == camel.lower()), name)
    return _of_answer(code, int(status or 0), f"{name.lower().replace('_', ' ')} {status or ''} in {operation}")


def _of_answer(code: str, status: int, text: str) -> OSError:
    if code in _REFUSALS:
        return RefusedError(errno.EACCES, f"{_REFUSALS[code]} ({code})")
    if code in ("NoSuchBucket", "ContainerNotFound"):
        return NoBucketError(errno.ENOENT, "there is no such bucket: create it, or correct its name")
    if code in _EXISTS or status == 412:
        return FileExistsError(errno.EEXIST, "exists already")
    if code == "NoSuchKey" or status == 404:
        return FileNotFoundError(errno.ENOENT, "not there")
    if status == 301:
        return RefusedError(errno.EACCES, f"{_REFUSALS['PermanentRedirect']} (301)")
    if status in (401, 403):
        return RefusedError(errno.EACCES, f"{_REFUSALS['AccessDenied']} ({status})")
    if 400 <= status < 500 and status not in (408, 429) and code not in _PASSING:
        return OSError(errno.EREMOTEIO, text)
    return OSError(errno.ETIMEDOUT, text)


def _code_and_status(error: Exception) -> tuple[str, int]:
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return str(response.get("Error", {}).get("Code", "")), int(status)
    code = str(getattr(error, "error_code", "") or "")  # Azure
    statuses = [str(getattr(error, name, "")) for name in ("status_code", "status", "code")]
    return code, next((int(status) for status in statuses if status.isdigit()), 0)
