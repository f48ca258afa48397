"""Image files are read by the example's own class, and a CNN learns what they show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.images import PIXELS, LabelledImages, main, write_images


@pytest.mark.slow
def test_shapes_are_named(ray_up: None, tmp_path: Path) -> None:
    """And images are steps in the order of their names."""
    (steps,) = LabelledImages(write_images(tmp_path / "few", count=2, seed=0)).batches(("obs", "actions"), needs_next_obs=True)
    assert steps["obs"].shape == (16, PIXELS, PIXELS, 1) and steps["obs"].dtype == np.uint8
    assert steps.of_steps("actions").tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert main(str(tmp_path)) > 0.95
