"""Clips of episodes that a recording left beside its dataset."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Mapping
from urllib.parse import quote

from offline_core.data.datasets.dataset import Dataset
from offline_core.keeping.contents import Contents
from offline_core.policies.recording.video import CLIPS, TYPES

MAX_CLIP_BYTES = 2 * 2**20
"""A larger one is linked."""


def clips_of(contents: Contents, name: str, dataset: Dataset) -> Mapping[str, str]:
    """The files of clips by eps_id.

    Arguments:
        name: of the dataset's folder, relative to the root.
    """
    folder = posixpath.join(name, CLIPS, f"{dataset.manifest.version:06d}/")
    files = [file for file in contents.catalogue.files if file.startswith(folder) and posixpath.splitext(file)[1] in TYPES]
    return {posixpath.splitext(posixpath.basename(file))[0]: file for file in files}


def clip_of(contents: Contents, file: str) -> Mapping[str, str]:
    """The type of a clip, and the clip itself or the address of its file."""
    location, type = contents.catalogue.location(file), TYPES[posixpath.splitext(file)[1]]
    if contents.catalogue.files[file].size <= MAX_CLIP_BYTES:
        return {"type": type, "data": f"data:{type};base64,{base64.b64encode(location.read()).decode('ascii')}"}
    return {"type": type, "href": f"file://{quote(location.uri)}" if location.is_local else location.uri}
