"""From the scheme of a URI to its store.

`s3://`, `gs://`, `abfs://` and `hdfs://` use their clients' own configuration. Other schemes, or other settings for these,
are defined in the variable `OFFLINE_FILESYSTEMS`, as JSON:

    {"archive": {"filesystem": "pyarrow.fs:HadoopFileSystem", "arguments": {"host": "namenode"}, "path": "/rl"},
     "s3": {"filesystem": "s3", "arguments": {"endpoint": "http://minio:9000"}}}

Then `archive://cartpole` is `/rl/cartpole` in that filesystem. `${NAME}` in an argument stands for another variable, as for
secrets.
"""

from __future__ import annotations

import functools
import json
import os
import re
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError

from offline_core.data.store.clouds import AzureCloud, GoogleCloud, MemoryCloud, NamedStore, azure_account
from offline_core.data.store.filesystem_store import FilesystemStore
from offline_core.data.store.fsspec_adapter import parse_url
from offline_core.data.store.hadoop import MAKER, hadoop_place
from offline_core.data.store.s3 import S3Settings, S3Store
from offline_core.data.store.stores import Store
from offline_core.data.store.variables import with_variables
from offline_core.errors import ConfigError, LocationError
from offline_core.runtime.config import Config
from offline_core.runtime.parameter_errors import problems

VARIABLE = "OFFLINE_FILESYSTEMS"


class FilesystemSpec(Config):
    """A filesystem with its arguments."""

    filesystem: str = Field(
        description="s3, gs, abfs, memory, a protocol of fsspec, or module:callable that makes one of PyArrow's or fsspec's."
    )
    arguments: dict[str, Any] = Field({}, description="Its arguments; ${NAME} in a text stands for an environment variable.")
    path: str = Field("", description="Folder in it that <scheme>:// stands for.")
    one_writer: bool = Field(
        False,
        description="No two runs ever write to the same folder. Needed for filesystems that cannot create a file exclusively: "
        "all but s3, gs, abfs and memory.",
    )


_BUILT_IN = {scheme: FilesystemSpec(filesystem=scheme) for scheme in ("s3", "gs", "abfs", "abfss", "hdfs")}
_SYNONYMS = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "az": "abfs", "abs": "abfs", "adl": "abfs"}
_ANONYMOUS = "anonymous@"
"""Before a bucket: access without credentials, as PyArrow's URIs of S3 say it."""
_CLOUDS: dict[str, type[Any]] = {
    "s3": S3Settings,
    "gs": GoogleCloud,
    "abfs": AzureCloud,
    "abfss": AzureCloud,
    "memory": MemoryCloud,
}
"""The stores with buckets, by the name of their filesystem; their fields are its arguments."""
_HINT = (
    " Credentials are found as the cloud's own tools find them: for s3 give a profile, or set AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY."
)
_NAME = re.compile(r"[a-z][a-z0-9+.-]+")
_SPECS = TypeAdapter(dict[str, FilesystemSpec])


def schemes() -> list[str]:
    """Return the schemes of URIs, besides `file`."""
    return list(_defined(os.environ.get(VARIABLE, "")))


def open_store(scheme: str, rest: str) -> tuple[Store, str]:
    """Return the store of `<scheme>://<rest>` and the path in it.

    Raises:
        LocationError: the scheme is unknown, or its package is not installed.
        ConfigError: `OFFLINE_FILESYSTEMS` is wrong.
    """
    specs = _defined(os.environ.get(VARIABLE, ""))
    spec = specs.get(scheme)
    if spec is None and scheme in _SYNONYMS:
        raise LocationError(f"{scheme}:// is written {_SYNONYMS[scheme]}:// here.")
    if spec is None:
        known = ", ".join(f"{name}://" for name in ("file", *specs))
        raise LocationError(f"{scheme}:// is none of {known}: use one of them, or define it in {VARIABLE}.")
    if spec.filesystem == scheme == "hdfs":
        path, arguments = hadoop_place(f"hdfs://{rest}", spec.arguments)
        path = "/".join(["", *filter(None, [*spec.path.split("/"), *path.split("/")])]) or "/"
        return FilesystemStore(MAKER, json.dumps(arguments, sort_keys=True), spec.one_writer), path
    if spec.filesystem in _CLOUDS:
        return _object_store(scheme, spec, rest)
    path = "/".join(filter(None, [*spec.path.split("/"), *rest.split("/")]))
    if spec.path.startswith("/"):
        path = f"/{path}"
    arguments = spec.arguments
    if ":" not in spec.filesystem:
        path, arguments = parse_url(spec.filesystem, path, arguments)
    return FilesystemStore(spec.filesystem, json.dumps(arguments, sort_keys=True), spec.one_writer), path


def _object_store(scheme: str, spec: FilesystemSpec, rest: str) -> tuple[Store, str]:
    kind, arguments = _CLOUDS[spec.filesystem], dict(spec.arguments)
    if rest.startswith(_ANONYMOUS) and kind is not AzureCloud:  # there it is a container
        rest, arguments = rest.removeprefix(_ANONYMOUS), arguments | {"anonymous": True}
    path = "/".join(filter(None, [*spec.path.split("/"), *rest.split("/")]))
    known = kind.model_fields
    if strange := ", ".join(arguments.keys() - known):  # without values, which may be secret
        raise ConfigError(f"{VARIABLE}: {scheme} has no argument {strange}; {spec.filesystem} takes {', '.join(known)}.{_HINT}")
    if spec.filesystem == "s3":
        return S3Store(S3Settings.of(with_variables(arguments))), path
    if kind is AzureCloud:
        path, account = azure_account(path)
        arguments |= account
    return NamedStore(kind, json.dumps(arguments, sort_keys=True)), path


@functools.lru_cache(maxsize=8)
def _defined(text: str) -> dict[str, FilesystemSpec]:
    if not text.strip():
        return _BUILT_IN
    try:
        specs = _SPECS.validate_json(text)
        if strange := [name for name in specs if not _NAME.fullmatch(name) or name == "file"]:
            raise ConfigError(
                f"{VARIABLE} defines {', '.join(strange)}: a name has two lower-case letters, digits, +, - or . at least, "
                "begins with a letter, and is not file."
            )
        return _BUILT_IN | specs
    except ValidationError as error:
        raise ConfigError(
            f'{VARIABLE} is wrong: {problems(error)}. It is JSON such as {{"name": {{"filesystem": "s3"}}}}.'
        ) from None
