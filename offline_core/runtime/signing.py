"""Signatures of what moves policies: HMAC-SHA256 by a key that only the environment holds.

Write access to a folder is enough to put a decision into it, with a checksum that is right: checksums find damage, not forgery.
With the variable `OFFLINE_SIGNING_KEY` set, decisions and moves are signed, and what is not signed by the same key is refused
or told. The key is in no file, no log and no result; a signature names the key by a short word that does not give it away.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from typing import Any

from offline_core.errors import ConfigError
from offline_core.secrets import masked

KEY = "OFFLINE_SIGNING_KEY"
LEAST_BYTES = 32
_SCHEME = "hmac-sha256"
_ID_LETTERS = 8


def key_id() -> str | None:
    """A word that stands for the key; None if none is set.

    Raises:
        ConfigError: the key is too short.
    """
    key = _key()
    return None if key is None else hmac.new(key, b"offline key id", hashlib.sha256).hexdigest()[:_ID_LETTERS]


def signature_of(kind: str, content: Mapping[str, Any]) -> str | None:
    """The signature of JSON-able values; None if no key is set.

    Arguments:
        kind: what they are, such as decision: no signature of one kind is one of another.

    Raises:
        ConfigError: the key is too short.
    """
    key = _key()
    if key is None:
        return None
    canonical = json.dumps([kind, masked(content)], sort_keys=True, separators=(",", ":"))  # masked, as it is stored
    return f"{_SCHEME}:{key_id()}:{hmac.new(key, canonical.encode(), hashlib.sha256).hexdigest()}"


def wrong_with(kind: str, content: Mapping[str, Any], signature: str | None) -> str | None:
    """Why a signature is not that of these values, as the end of a sentence; None if it is, or if no key is set to tell.

    Raises:
        ConfigError: the key is too short.
    """
    expected = signature_of(kind, content)
    if expected is None:
        return None
    if signature is None:
        return f"is not signed, and {KEY} is set"
    if hmac.compare_digest(signature.encode(), expected.encode()):
        return None
    other = signature.split(":")[1][:_ID_LETTERS] if signature.count(":") == 2 else "?"
    if other != key_id():
        return f"is signed by another key ({other}) than {KEY} holds ({key_id()})"
    return "is not what was signed: it was changed since, or is a copy from another place"


def _key() -> bytes | None:
    key = os.environ.get(KEY, "").strip().encode(errors="surrogateescape")  # a file of a key ends with a line break
    if not key:
        return None
    if len(key) < LEAST_BYTES:
        raise ConfigError(
            f"{KEY} has {len(key)} bytes and needs {LEAST_BYTES} or more. Make one by 'openssl rand -hex 32', and give "
            "the same one to all who decide, promote and roll back."
        )
    return key
