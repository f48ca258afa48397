"""An emulator of Google's store that also heeds conditions and permissions; run with a port.

Without the first it would overwrite what is to be created only once. Whoever asks for the bucket `forbidden` may not.
"""

from __future__ import annotations

import sys
from http import HTTPStatus
from typing import Any

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects

_insert = objects.insert


def insert(request: Any, response: Any, storage: Any, *args: Any, **kwargs: Any) -> None:
    """An upload; the server has one thread, so nothing comes between the look and the write."""
    bucket = request.params["bucket_name"]
    if request.query.get("ifGenerationMatch") == ["0"]:
        name = request.query.get("name", [None])[0] or request.data["meta"]["name"]
        try:
            storage.get_file_obj(bucket, name)
        except NotFound:
            pass
        else:
            _refuse(response, HTTPStatus.PRECONDITION_FAILED, "conditionNotMet")
            return
    _insert(request, response, storage, *args, **kwargs)


def _refuse(response: Any, status: HTTPStatus, reason: str) -> None:
    response.status = status
    response.json({"error": {"code": status.value, "message": reason}})


def main(port: int) -> None:
    objects.insert = insert
    from gcp_storage_emulator import server  # which takes the handlers as they are now

    handle = server.Router.handle

    def allowed(self: Any, method: str) -> None:
        if "/b/forbidden" in self._request_handler.path:
            response = server.Response(self._request_handler)
            _refuse(response, HTTPStatus.FORBIDDEN, "someone@example.com does not have storage.objects access")
            response.close()
        else:
            handle(self, method)

    server.Router.handle = allowed
    server.create_server("127.0.0.1", port, in_memory=True).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
