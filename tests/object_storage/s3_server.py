"""moto's server of S3, whose conditional put is atomic as S3's is: moto itself looks, and then writes."""

import threading
from typing import Any

from moto.s3.responses import S3Response
from moto.server import main

_ONE_AT_A_TIME = threading.Lock()
_put_object = S3Response.put_object


def put_alone(self: S3Response) -> Any:
    with _ONE_AT_A_TIME:
        return _put_object(self)


if __name__ == "__main__":
    S3Response.put_object = put_alone  # type: ignore[method-assign]
    main()
