"""Copy a checkpoint to a folder that is named by its content, and so never changes."""

from __future__ import annotations

import hashlib

from offline_core.data.store.json_files import with_checksum
from offline_core.data.store.location import Location
from offline_core.errors import CheckpointError
from offline_core.policies.manifest import POLICY_FILE, PolicyManifest


def copy_policy(uri: str, manifest: PolicyManifest, folder: Location) -> str:
    """Copy the checkpoint at `uri` to a folder below `folder`, and return its name.

    The manifest is written last. Two writers of the same checkpoint write the same files.

    Raises:
        CheckpointError: The weights are not those of the manifest: damaged, or another policy has replaced them.
        StorageError: A file cannot be read or written.
    """
    weights = Location.of(uri).inside(manifest.weights_file).read()
    if hashlib.sha256(weights).hexdigest() != manifest.weights_sha256:
        raise CheckpointError(f"The weights of policy {uri} are damaged: {manifest.weights_file} does not match its SHA-256.")
    described = with_checksum(manifest.model_dump_json(indent=2))
    name = hashlib.sha256(described).hexdigest()[:16]
    copy = folder.child(name)
    copy.inside(manifest.weights_file).write(weights)
    copy.child(POLICY_FILE).write(described)
    return name
