"""Where clips of recorded episodes are: <dataset>/_clips/<version>/<eps_id>.mp4, or .gif."""

from __future__ import annotations

CLIPS = "_clips"
TYPES = {".mp4": "video/mp4", ".gif": "image/gif"}
"""Media types by the ending of a file's name."""
