"""The process of the server that a run brings with it: it ends when its input does, and so with the run, however that ends.

Its first argument is a folder for its database, which is its own and is deleted with it: no run waits for another's lock.
"""

import os
import runpy
import shutil
import signal
import sys
import threading
from pathlib import Path

from flows.prefect_database import make_database


def _end_with_input() -> None:
    while os.read(0, 1):  # sys.stdin has a lock, which this thread would hold when Python ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn hands it on when all is closed; the folder goes after that
    threading.Thread(target=_end_with_input, daemon=True).start()
    folder = sys.argv.pop(1)
    path = Path(folder) / "prefect.db"
    try:
        # Before Prefect reads its settings, and by the name that wins: else a database that is set for a server is used.
        os.environ["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = f"sqlite+aiosqlite:///{path}"
        make_database(path)
        runpy.run_module("uvicorn", run_name="__main__")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
