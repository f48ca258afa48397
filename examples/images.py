"""Replace reading and mapping by a data class: image files through Ray Data, classified by a CNN.

    python -m examples.images runs/images

makes PNGs of 16 × 16 pixels, each named after its shape, and learns to name the shape.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import gymnasium as gym
import numpy as np
import ray.data
from PIL import Image

import offline_core as offline

SHAPES = ("bar", "cross", "frame", "slash")
PIXELS = 16


class LabelledImages:
    """Each image is an episode of one step: observation (16, 16, 1) uint8, action the number of the shape in its name."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def spaces(self) -> tuple[gym.Space, gym.Space]:
        return gym.spaces.Box(0, 255, (PIXELS, PIXELS, 1), np.uint8), gym.spaces.Discrete(len(SHAPES))

    def batches(self, wanted: Sequence[str], *, needs_next_obs: bool) -> Iterator[offline.EpisodeBatch]:
        images = ray.data.read_images(self.uri, mode="L", include_paths=True).sort("path")
        for batch in images.iter_batches(batch_size=512, batch_format="numpy"):
            observations = np.stack(list(batch["image"]))[..., None]
            shapes = [SHAPES.index(Path(path).name.partition("-")[0]) for path in batch["path"]]
            ends = {"rewards": np.ones(len(shapes)), "terminateds": np.ones(len(shapes), bool)}
            steps = {"obs": observations, "actions": np.array(shapes), **ends}
            yield offline.EpisodeBatch.from_steps(steps, np.ones(len(shapes)), observations if needs_next_obs else None)


def draw(shape: str, rng: np.random.Generator) -> np.ndarray:
    """A noisy picture of the shape, (16, 16) uint8, with a random position and size."""
    image = rng.integers(0, 60, (PIXELS, PIXELS))
    size = int(rng.integers(8, 13))
    top, left = rng.integers(0, PIXELS - size + 1, 2)
    picture = np.zeros((size, size), bool)
    match shape:
        case "bar":
            picture[size // 2] = True
        case "cross":
            picture[size // 2], picture[:, size // 2] = True, True
        case "frame":
            picture[[0, -1]], picture[:, [0, -1]] = True, True
        case "slash":
            picture[np.arange(size), np.arange(size)[::-1]] = True
    image[top : top + size, left : left + size][picture] += 150
    return image.astype(np.uint8)


def write_images(folder: Path, count: int, seed: int) -> str:
    """Write `count` PNGs of each shape."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for shape in SHAPES:
        for number in range(count):
            Image.fromarray(draw(shape, rng)).save(folder / f"{shape}-{number:04d}.png")
    return str(folder)


TRAINING = {
    "data": {"data_class": {"path": "examples.images:LabelledImages"}},
    "network": {"convolutions": [[16, 3, 1], [32, 3, 2], [32, 3, 2]], "hidden_sizes": [64]},
    "optimizer": {"max_epochs": 20, "batch_size": 64, "learning_rate": 2e-3},
}


def main(folder: str) -> float:
    """Learn from some images; return the share of other images that are named correctly."""
    images, others = (write_images(Path(folder, str(seed)), count=250, seed=seed) for seed in (0, 1))
    with offline.ray_session():
        result = offline.train(images, config=TRAINING, output=f"{folder}/policy")
        steps = next(LabelledImages(others).batches(("obs", "actions"), needs_next_obs=False))
    accuracy = float((offline.load_policy(result.best).act(steps["obs"]) == steps["actions"]).mean())
    print(f"{100 * accuracy:.0f} % of new images are named correctly")
    return accuracy


if __name__ == "__main__":
    main(*sys.argv[1:])
