"""All networks of a training at its end, with which learning can go on by play: critics, targets, temperature."""

from __future__ import annotations

import hashlib

import safetensors
import safetensors.torch
from torch import Tensor

from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.result import NETWORKS_FILE


def save_networks(algorithm: Networks, folder: Location) -> str:
    """Write or replace them in the folder of a training; return their hash."""
    networks = {name: tensor.detach().cpu().clone() for name, tensor in algorithm.state_dict().items()}  # some share memory
    data = safetensors.torch.save(networks)
    folder.child(NETWORKS_FILE).write(data)
    return hashlib.sha256(data).hexdigest()


def load_networks(folder: Location, sha256: str) -> dict[str, Tensor]:
    """Return the networks of a training by name, (…) each.

    Raises:
        CorruptFileError: The file is missing or not the one that the training wrote.
    """
    file = folder.child(NETWORKS_FILE)
    data = file.read() if file.is_file() else b""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CorruptFileError(
            f"{file.uri} is not what the training wrote: delete result.json beside it and train again.", uri=file.uri
        )
    try:
        found: dict[str, Tensor] = safetensors.torch.load(data)
    except safetensors.SafetensorError as error:
        raise CorruptFileError(f"{file.uri} cannot be read: {error}", uri=file.uri) from error
    return found
