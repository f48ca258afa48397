"""moto's server of S3 as Google's store, which speaks the same XML, but has its own name for a condition; run with a port.

Whoever asks for the bucket `forbidden` may not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.responses import S3Response
from werkzeug.serving import run_simple

from tests.object_storage.s3_server import put_alone

FORBIDDEN = b"<Error><Code>AccessDenied</Code><Message>You do not have storage.objects access.</Message></Error>"


def main(port: int) -> None:
    S3Response.put_object = put_alone  # type: ignore[method-assign]
    s3 = DomainDispatcherApplication(create_backend_app)

    def google(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith("/forbidden"):
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [FORBIDDEN]
        if environ.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
            environ["HTTP_IF_NONE_MATCH"] = "*"
        environ["HTTP_AUTHORIZATION"] = "Bearer somebody"  # moto lets nobody read what is not public
        for name in ("RAW_URI", "REQUEST_URI"):  # obstore escapes more of a name for Google than moto takes back
            path, mark, query = environ[name].partition("?")
            environ[name] = quote(unquote(path)) + mark + query
        return s3(environ, start_response)  # type: ignore[no-any-return]

    run_simple("127.0.0.1", port, google, threaded=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
