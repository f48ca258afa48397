"""`hdfs:` URIs as arguments of PyArrow's Hadoop client."""

from __future__ import annotations

import re
from typing import Any

from offline_core.errors import LocationError

MAKER = "pyarrow.fs:HadoopFileSystem"

NO_CLIENT = (
    "Hadoop's client cannot be loaded (libhdfs, and libjvm of Java): install both, and set JAVA_HOME, HADOOP_HOME (or "
    "ARROW_LIBHDFS_DIR, the folder of libhdfs.so) and CLASSPATH, to what `hadoop classpath --glob` prints"
)

_PLACE = re.compile(r"(?://(?:(?P<user>[^/@:]+)@)?(?P<host>[^/@:]*)(?::(?P<port>\d+))?)?(?P<path>/.*|$)")
_LOADING = re.compile(r"Unable to load lib(jvm|hdfs)|Prior attempt to load libhdfs failed")


def hadoop_uri(rest: str) -> str:
    """Return the canonical form of `hdfs:<rest>`; without a server, Hadoop's configuration names one.

    Raises:
        LocationError: it is not a valid URI.
    """
    match, has_server = _PLACE.fullmatch(rest), rest.startswith("//")
    if match is None or (has_server and match["host"] is None) or not (match["host"] or match["path"].strip("/")):
        raise LocationError(f"hdfs:{rest} is no location in Hadoop; write hdfs://namenode:8020/folder, or hdfs:///folder.")
    server = rest.removeprefix("//").partition("/")[0] if has_server else ""
    return "/".join([f"hdfs://{server}", *filter(None, match["path"].split("/"))])


def hadoop_place(uri: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return (path, arguments of `MAKER`) for a canonical URI; `arguments` may name the server that the URI omits."""
    match = _PLACE.fullmatch(uri.removeprefix("hdfs:"))
    assert match is not None
    named: dict[str, Any] = {"host": match["host"], "port": int(match["port"] or 0)} if match["host"] else {}
    who = {"user": match["user"]} if match["user"] else {}
    return match["path"] or "/", {"host": "default", "port": 0} | arguments | named | who


def is_missing_client(error: OSError) -> bool:
    """Whether PyArrow did not find Hadoop's libraries."""
    return _LOADING.match(str(error)) is not None
