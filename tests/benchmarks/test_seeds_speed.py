"""The benchmark of seeds without its minutes: what counts as a matrix product, and that a batched update is each seed's."""

from __future__ import annotations

import torch

from benchmarks.reference.our_speed import steps_of
from benchmarks.reference.seeds_speed import BATCH, SEEDS, batched_update, products_of, seeded


def test_products_are_those_of_forward_and_backward_pass() -> None:
    first, last, inputs = torch.nn.Linear(3, 5), torch.nn.Linear(5, 1), torch.ones(4, 3)
    products = products_of(lambda: last(first(inputs).relu()).sum().backward())
    assert sorted(tuple(product().shape) for product in products) == sorted([(4, 5), (4, 1), (1, 5), (4, 5), (5, 3)])


def test_a_batched_update_is_that_of_each_seed() -> None:
    learners = [seeded("bc", 8, seed) for seed in range(SEEDS)]
    steps = steps_of("bc")
    for learner in learners:
        learner.load(steps)
    trained = batched_update("bc", 8, learners[0])()
    for seed, learner in enumerate(learners):
        learner.update(learner.indices().roll(BATCH * seed)[:BATCH])
        for name, parameter in learner.networks.named_parameters():
            torch.testing.assert_close(trained[name][seed], parameter, atol=1e-6, rtol=1e-4)
