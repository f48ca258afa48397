"""Clips of episodes that a recording left beside its dataset."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from offline_core.data.datasets.dataset import Dataset
from offline_core.keeping.contents import Contents
from offline_core.policies.recording.video import CLIPS, TYPES

MAX_CLIP_BYTES = 2 * 2**20
"""A larger one is linked."""


def clips_of(found: Contents, name: str, dataset: Dataset) -> Mapping[str, Any]:
    """By eps_id: the type of a clip, and the clip itself or the address of its file.

    Arguments:
        name: of the dataset's folder, relative to the root.
    """
    folder = posixpath.join(name, CLIPS, f"{dataset.manifest.version:06d}/")
    clips: dict[str, Any] = {}
    for file, state in found.catalogue.files.items():
        stem, ending = posixpath.splitext(posixpath.basename(file))
        if not file.startswith(folder) or ending not in TYPES:
            continue
        place = found.catalogue.place(file)
        if state.size <= MAX_CLIP_BYTES:
            data = base64.b64encode(place.read()).decode("ascii")
            clips[stem] = {"type": TYPES[ending], "data": f"data:{TYPES[ending]};base64,{data}"}
        else:
            clips[stem] = {"type": TYPES[ending], "href": f"file://{quote(place.uri)}" if place.is_local else place.uri}
    return clips
