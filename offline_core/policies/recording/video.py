"""Frames into the bytes of a clip: MP4 where imageio-ffmpeg is installed, else GIF."""

from __future__ import annotations

import importlib.util
import io
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

CLIPS = "_clips"
"""Folder of clips in a dataset."""
TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
"""Media types by the ending of a file's name."""
GIF_SIDE = 320
"""Pixels of the longer side, at most: GIFs are large."""


class Mp4:
    """H.264, which browsers play. Frames go to the encoder at once; memory does not grow with them."""

    ending = ".mp4"

    def __init__(self, frames_per_second: float) -> None:
        self._frames_per_second = frames_per_second
        self._folder = tempfile.TemporaryDirectory(prefix="offline-clip-")
        self._file = Path(self._folder.name, "clip.mp4")
        self._writer: Any = None

    def add(self, frame: np.ndarray) -> None:
        """Add a picture; its last row and column are cut off if their number is odd, which the format cannot hold."""
        import imageio_ffmpeg

        even = np.ascontiguousarray(frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2])
        if self._writer is None:
            size = (even.shape[1], even.shape[0])
            self._writer = imageio_ffmpeg.write_frames(
                str(self._file),
                size,
                fps=self._frames_per_second,
                codec="libx264",
                macro_block_size=2,
                ffmpeg_log_level="error",
            )
            self._writer.send(None)
        self._writer.send(even)

    def close(self) -> bytes:
        """Return the clip."""
        with self._folder:
            if self._writer is not None:
                self._writer.close()
            return self._file.read_bytes()


class Gif:
    """Smaller, in 64 colours."""

    ending = ".gif"

    def __init__(self, frames_per_second: float) -> None:
        self._milliseconds = max(20, round(1000 / frames_per_second))
        self._frames: list[Any] = []

    def add(self, frame: np.ndarray) -> None:
        """Add a picture."""
        from PIL import Image

        step = -(-max(frame.shape[:2]) // GIF_SIDE)
        self._frames.append(Image.fromarray(np.ascontiguousarray(frame[::step, ::step])).quantize(64))

    def close(self) -> bytes:
        """Return the clip."""
        file = io.BytesIO()
        first, *rest = self._frames
        first.save(file, "GIF", save_all=True, append_images=rest, duration=self._milliseconds, loop=0)
        return file.getvalue()


Film: TypeAlias = Mp4 | Gif
"""Takes (H, W, 3) pictures of bytes one by one, then gives the clip; `ending` is the suffix of its file's name."""


def new_film(frames_per_second: float) -> Film:
    """Return a film that takes the pictures of a clip: MP4 if that can be made."""
    return Mp4(frames_per_second) if importlib.util.find_spec("imageio_ffmpeg") else Gif(frames_per_second)
