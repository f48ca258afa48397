"""Make episodes of text with a prelearner: sentences → tokens → one-hot observations, the next token as the action.

    python -m examples.text runs/text

makes sentences and learns to predict the next token: first from one token, which does not tell what follows "the", then from
the last three.
"""

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import offline_core as offline

SENTENCES = [
    "the cat chases the mouse into the house .",
    "the dog chases the cat around the tree .",
    "the bird sees the worm under the leaf .",
    "a bird sings in the tree all day .",
    "a dog sleeps in the house all night .",
]
VOCABULARY = sorted({token for sentence in SENTENCES for token in sentence.split()})


class TextPreLearner(offline.PreLearner):
    """One episode a line of text: tokens (T + 1, V) one-hot float32, actions (T,) the number of the next token.

    Arguments:
        vocabulary: the V tokens; a line with any other token is an error.
    """

    def __init__(self, *, vocabulary: list[str], **given: Any) -> None:
        super().__init__(**given)
        self.vocabulary = vocabulary

    def spaces(self, *_: Any) -> tuple[gym.Space, gym.Space]:
        size = len(self.vocabulary)
        return gym.spaces.Box(0.0, 1.0, (size,)), gym.spaces.Discrete(size)

    def episodes(self, rows: pa.Table) -> list[offline.Episode]:
        return [self._episode(tokens) for tokens in pc.split_pattern_regex(rows["text"], r"\s+").to_pylist()]

    def _episode(self, tokens: list[str]) -> offline.Episode:
        numbers = np.array([self.vocabulary.index(token) for token in tokens])
        rewards = np.zeros(len(numbers) - 1)
        rewards[-1:] = 1.0
        return offline.Episode(
            eps_id=" ".join(tokens),
            observations=np.eye(len(self.vocabulary), dtype=np.float32)[numbers],
            actions=numbers[1:],
            rewards=rewards,
            terminated=True,
        )


class StackedTextPreLearner(TextPreLearner):
    """The last `frames` tokens at once: observations (R, frames · V), the oldest first, zeros before the sentence."""

    def __init__(self, *, frames: int = 3, **given: Any) -> None:
        super().__init__(**given)
        self.frames = frames

    def spaces(self, *_: Any) -> tuple[gym.Space, gym.Space]:
        size = len(self.vocabulary)
        return gym.spaces.Box(0.0, 1.0, (self.frames * size,)), gym.spaces.Discrete(size)

    def batch(self, rows: pa.Table) -> offline.EpisodeBatch:
        steps = super().batch(rows)
        if not steps.rows:
            return steps
        seen = np.arange(steps.rows)[:, None] + np.arange(1 - self.frames, 1)
        stacked = np.where((seen >= steps.first[:, None])[..., None], steps["obs"][seen], 0)
        return steps | {"obs": stacked.reshape(steps.rows, -1).astype(np.float32)}


def write_sentences(file: Path, count: int, seed: int) -> str:
    """Write `count` sentences, a line each."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(np.random.default_rng(seed).choice(SENTENCES, count)) + "\n")
    return str(file)


def training(kind: type[TextPreLearner], **arguments: Any) -> dict[str, Any]:
    """Parameters of behaviour cloning from lines of text."""
    prelearner = {"path": f"examples.text:{kind.__name__}", "arguments": {"vocabulary": VOCABULARY, **arguments}}
    data = {"source": {"format": "read_text"}, "prelearner": prelearner}
    optimizer = {"max_epochs": 40, "batch_size": 256, "learning_rate": 0.01}
    return {"data": data, "optimizer": optimizer}


def accuracy(policy: str, kind: type[TextPreLearner], text: str) -> float:
    """The share of tokens that the policy predicts."""
    prelearner = kind(vocabulary=VOCABULARY, format="rows", wanted=("obs", "actions"), needs_next_obs=False, where=text)
    steps = prelearner.batch(pa.table({"text": Path(text).read_text().splitlines()}))
    return float((offline.load_policy(policy).act(steps["obs"]) == steps["actions"]).mean())


def main(folder: str) -> dict[str, float]:
    """Learn both ways; return the accuracies on other sentences."""
    text, other = (write_sentences(Path(folder, f"{seed}.txt"), count=500, seed=seed) for seed in (0, 1))
    found = {}
    for kind in (TextPreLearner, StackedTextPreLearner):
        result = offline.train(text, config=training(kind), output=f"{folder}/{kind.__name__}")
        found[kind.__name__] = accuracy(result.best, kind, other)
        print(f"{kind.__name__}: predicts {100 * found[kind.__name__]:.0f} % of the tokens")
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
