"""Behaviour cloning, which has no parameters."""

from __future__ import annotations

from typing import ClassVar

from offline_core.learning.algorithms.algorithm_config import AlgorithmConfig


class BCConfig(AlgorithmConfig):
    """No parameters."""

    implementation: ClassVar[str] = "offline_core.learning.algorithms.bc:BC"
