"""The process of the server that a run brings with it: it ends when its input does, and so with the run, however that ends."""

import os
import runpy
import signal
import sys
import threading


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    runpy.run_module("uvicorn", run_name="__main__")
