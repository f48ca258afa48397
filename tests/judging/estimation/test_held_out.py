"""What says that functions are fitted: which episodes are held out, and which weights are kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from offline_core.judging.estimation.held_out import PATIENCE, BestWeights, held_out_of


def test_a_fifth_is_held_out_and_what_belongs_together_stays_together() -> None:
    together = np.repeat(np.arange(0, 400, 2), 2)
    held_out = held_out_of(together, np.repeat(np.arange(200) % 2, 2), seed=0)
    assert held_out is not None and held_out.mean() == pytest.approx(0.2)
    assert (held_out[::2] == held_out[1::2]).all()


def test_the_seed_alone_says_which_are_held_out() -> None:
    some, again, others = (held_out_of(np.arange(200), np.zeros(200, np.int64), seed=seed) for seed in (0, 0, 1))
    assert some is not None and again is not None and others is not None
    assert (some == again).all() and not (some == others).all()


@pytest.mark.parametrize(("episodes", "parts", "is_enough"), [(50, 1, True), (40, 1, False), (60, 2, False), (200, 2, True)])
def test_few_episodes_hold_none_out(episodes: int, parts: int, is_enough: bool) -> None:
    """Of 60 episodes in two parts, a function would have some 6 of the 30 that it is fitted to."""
    assert (held_out_of(np.arange(episodes), np.arange(episodes) % parts, seed=0) is not None) == is_enough


def looked(functions: list[nn.Linear], losses: list[list[float]]) -> BestWeights:
    """The best weights after some looks, at each of which all weights are its number."""
    best = BestWeights(functions)
    for number, of_look in enumerate(losses):
        for function in functions:
            nn.init.constant_(function.weight, number)
        best.look(of_look)
    return best


def test_each_function_gets_the_weights_of_its_lowest_loss() -> None:
    functions = [nn.Linear(1, 1), nn.Linear(1, 1)]
    looked(functions, [[3.0, 1.0], [2.0, 2.0], [1.0, 3.0], [4.0, 4.0]]).restore()
    assert torch.cat([function.weight.flatten() for function in functions]).tolist() == [2.0, 0.0]


def test_what_a_function_ends_as_does_not_depend_on_how_long_others_take() -> None:
    """The first has no lower loss for `PATIENCE` looks, and then, while the second still learns, has one by chance."""
    own, falling = [1.0, *[2.0] * PATIENCE, 0.0], [float(-look) for look in range(PATIENCE + 2)]
    functions = [nn.Linear(1, 1), nn.Linear(1, 1)]
    best = looked(functions, [list(pair) for pair in zip(own, falling, strict=True)])
    assert not best.are_found
    best.restore()
    assert [function.weight.item() for function in functions] == [0.0, PATIENCE + 1.0]
    assert looked([nn.Linear(1, 1)], [[loss] for loss in own[:-1]]).are_found
