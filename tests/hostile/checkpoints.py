"""Checkpoints that lie about sizes, or name code."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import safetensors.numpy

from offline_core.data.datasets.manifest import Operation
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.evaluation import EvaluationConfig, evaluate
from offline_core.policies.policy import Policy

BOX = {"space": "box", "dtype": "float32", "shape": [4], "low": 0, "high": 1}


def deep(depth: int, inner: Any) -> Any:
    for _ in range(depth):
        inner = {"space": "tuple", "spaces": [inner]}
    return inner


NETWORKS: list[dict[str, Any]] = [
    {"module": "hostile_code:Net"},
    {"module": "hostile_code.deeper:Net"},
    {"module": "os:system"},
    {"module": "antigravity:fly"},
    {"module": "__main__:main"},
    {"module": "a b:c"},
    {"hidden_sizes": [10**9]},
    {"hidden_sizes": [65_536] * 10},
    {"hidden_sizes": [-1]},
    {"hidden_sizes": [64] * 10**5},
    {"hidden_sizes": [float("nan")]},
    {"recurrent": "lstm", "recurrent_units": 65_536},
    {"frames": 10**9},
    {"frames": 64, "hidden_sizes": [65_536, 65_536]},
    {"convolutions": [[65_536, 65_536, 1]]},
    {"activation": "__import__('os')"},
    {"unknown": 1},
]
SPACES: list[Any] = [
    {"space": "discrete", "n": 10**9},
    {"space": "discrete", "n": 10**18},
    {"space": "discrete", "n": 10**30},
    {"space": "discrete", "n": -1},
    {"space": "multi-binary", "n": 10**9},
    {"space": "multi-binary", "n": [10**6, 10**6]},
    {"space": "multi-discrete", "dtype": "int64", "nvec": [10**9] * 4},
    {"space": "text", "max_length": 10**9, "min_length": 0, "charset": "ab"},
    BOX | {"shape": [10**9]},
    BOX | {"shape": [10**6, 10**6]},
    BOX | {"shape": [-1]},
    BOX | {"dtype": "object"},
    BOX | {"dtype": "U99999999"},
    BOX | {"low": "eJwAAAD//w=="},
    BOX | {"low": [[]]},
    deep(300, BOX),
    deep(40, BOX),
    {"space": "tuple", "spaces": [BOX] * 5000},
    {"space": "code"},
    {},
]
ENVIRONMENTS = [
    {"id": "hostile_code:Env-v0"},
    {"id": "hostile_code.deeper:Env-v0"},
    {"id": "CartPole-v1", "kwargs": {"entry_point": "hostile_code:Env"}},
    {"id": "CartPole-v1", "kwargs": {"render_mode": "hostile_code:x"}},
    {"id": "Ant-v5", "kwargs": {"xml_file": "outside/canary"}},
    {"id": "GymV26Environment-v0", "kwargs": {"env_id": "hostile_code:Env-v0"}},
    {"id": "no/such/environment-v0"},
]
TEXTS = [
    '{"observation_space": ' + '{"spaces": [' * 5000,
    "",
    "[" * 100_000,
    '{"a":' * 100_000,
    "null",
    "[]",
    "1" * 10_000,
    "\0\xff",
    '{"weights_sha256": 1}',
]


def headers() -> list[bytes]:
    """Files of safetensors that are none."""

    def of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    huge = {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]}
    return [
        b"",
        b"\xff" * 8,
        of({}, length=10**18),
        of({"a": huge}),
        of({"a": huge | {"data_offsets": [0, 4]}}, b"1234"),
        of({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 0]}}),
        of({"a": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}}),
        of({"a": {"dtype": "O", "shape": [1], "data_offsets": [0, 8]}}, b"12345678"),
        of({"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, b"1"),
        of({"__metadata__": {"x": "y" * 10**6}}),
        of({f"t{number}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for number in range(50_000)}),
        b"\x80\x04cos\nsystem\n(S'touch ran'\ntR.",
    ]


def inputs(folder: Path) -> dict[str, Callable[[], Any]]:
    spaces = (gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2))
    save_policy(Policy(*spaces), str(folder / "policy"), operation=Operation(name="test"))
    whole = json.loads((folder / "policy" / "policy.json").read_text())
    tensors = safetensors.numpy.load_file(folder / "policy" / whole["weights_file"])
    calls: dict[str, Callable[[], Any]] = {}

    def add(name: str, changes: dict[str, Any] | None = None, *, text: str | None = None, weights: bytes | None = None) -> None:
        place = folder / f"policy {len(calls)}"
        shutil.copytree(folder / "policy", place)
        manifest = whole | (changes or {})
        if weights is not None:
            (place / whole["weights_file"]).write_bytes(weights)
            manifest["weights_sha256"] = hashlib.sha256(weights).hexdigest()
        (place / "policy.json").write_text(json.dumps(manifest) if text is None else text, errors="ignore")
        calls[name] = lambda: call(str(place))

    def call(place: str) -> Any:
        policy = load_policy(place)
        return policy, evaluate(EvaluationConfig(episodes=1), policy=place)

    for network in NETWORKS:
        add(f"network {str(network)[:50]}", {"network": network})
    for number, space in enumerate(SPACES):
        add(f"observations {number}", {"observation_space": space})
        add(f"actions {number}", {"action_space": space})
    for environment in ENVIRONMENTS:
        add(f"environment {environment}", {"environment": environment})
    for number, text in enumerate(TEXTS):
        add(f"text {number}", text=text)
    for number, weights in enumerate(headers()):
        add(f"weights {number}", weights=weights)
    add("NaN", weights=safetensors.numpy.save({name: np.full_like(tensor, np.nan) for name, tensor in tensors.items()}))
    add("other shapes", weights=safetensors.numpy.save({name: tensor[None] for name, tensor in tensors.items()}))
    add("other types", weights=safetensors.numpy.save({name: tensor.astype("f8") for name, tensor in tensors.items()}))
    add("more", weights=safetensors.numpy.save(tensors | {"more": np.zeros(10)}))
    return calls
