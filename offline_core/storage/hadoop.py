"""Places in Hadoop: from a URI to PyArrow's client and its arguments."""

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
    """The one way to write `hdfs:<rest>`: without a server, the place is in the one that Hadoop's configuration names.

    Raises:
        LocationError: it is none.
    """
    found, has_server = _PLACE.fullmatch(rest), rest.startswith("//")
    if found is None or (has_server and found["host"] is None) or not (found["host"] or found["path"].strip("/")):
        raise LocationError(f"hdfs:{rest} names no place in Hadoop; write hdfs://namenode:8020/folder, or hdfs:///folder.")
    server = rest.removeprefix("//").partition("/")[0] if has_server else ""
    return "/".join([f"hdfs://{server}", *filter(None, found["path"].split("/"))])


def hadoop_place(uri: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """(path, arguments of `MAKER`) of what `hadoop_uri` gives; a server among `arguments` is meant if the URI names none."""
    found = _PLACE.fullmatch(uri.removeprefix("hdfs:"))
    assert found is not None
    named: dict[str, Any] = {"host": found["host"], "port": int(found["port"] or 0)} if found["host"] else {}
    who = {"user": found["user"]} if found["user"] else {}
    return found["path"] or "/", {"host": "default", "port": 0} | arguments | named | who


def is_missing_client(error: OSError) -> bool:
    """PyArrow looked for libraries that are not installed."""
    return _LOADING.match(str(error)) is not None
