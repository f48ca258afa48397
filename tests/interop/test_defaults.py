"""The defaults that docs/rllib.md states are those of RLlib's configuration objects, and of our models."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from offline_core.learning.config import TrainingConfig
from offline_core.learning.experts.config import ExpertConfig
from offline_core.policies.evaluation import EvaluationConfig

if any(importlib.util.find_spec(name) is None for name in ("ray", "tree", "scipy")):
    pytest.skip("RLlib needs the 'interop' extra: pip install -e '.[interop]'", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")  # RLlib's own

PAGE = Path(__file__).parents[2] / "docs" / "rllib.md"
OFFLINE = ("BC", "MARWIL", "DQN", "CQL", "IQL")
WORDS = {"none": None, "true": True, "false": False}
NOT_THERE = "not there"

EQUAL = {
    # (algorithm, option): parameter; what is not in the table, since nothing changes
    ("MARWIL", "beta"): "marwil.beta",
    ("MARWIL", "gamma"): "marwil.gamma",
    ("MARWIL", "lambda_"): "marwil.gae_lambda",
    ("MARWIL", "vf_coeff"): "marwil.value_coefficient",
    ("MARWIL", "grad_clip"): "optimizer.max_gradient_norm",
    ("MARWIL", "fcnet_activation"): "network.activation",
    ("MARWIL", "num_learners"): "compute.learners",
    ("DQN", "gamma"): "dqn.gamma",
    ("DQN", "double_q"): "dqn.double",
    ("DQN", "dueling"): "dqn.dueling",
    ("CQL", "gamma"): "cql.gamma",
    ("CQL", "critic_lr"): "optimizer.learning_rate",
    ("CQL", "alpha_lr"): "optimizer.learning_rate",
    ("CQL", "grad_clip"): "optimizer.max_gradient_norm",
    ("CQL", "n_step"): "cql.n_step",
    ("CQL", "num_actions"): "cql.action_samples",
    ("CQL", "tau"): "cql.target_rate",
    ("IQL", "gamma"): "iql.gamma",
    ("IQL", "grad_clip"): "optimizer.max_gradient_norm",
    ("PPO", "gamma"): "ppo.gamma",
    ("PPO", "entropy_coeff"): "ppo.entropy_coefficient",
    ("PPO", "vf_share_layers"): "network.share_layers",
}


class Row(NamedTuple):
    options: list[str]
    algorithms: list[str]
    parameters: list[str]
    there: Any
    here: Any


def rows() -> list[Row]:
    """Of the tables of defaults, all with four columns."""
    found = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or cells[0] in ("RLlib", "---"):
            continue
        subject, _, of = cells[0].partition(" of ")
        names = re.findall(r"[A-Z]{2,}", of) or list(OFFLINE)
        options, parameters = (re.findall(r"`([^`]+)`", cell) for cell in (subject, cells[1]))
        found.append(Row(options if of else [], names, parameters, value(cells[2]), value(cells[3])))
    return found


def value(cell: str) -> Any:
    """What a cell says before its remark in brackets."""
    text = re.sub(r" \(.*\)$", "", cell)
    if re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        return int(text.replace(",", ""))
    try:
        return WORDS[text] if text in WORDS else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@functools.cache
def rllib(algorithm: str) -> Any:
    module = importlib.import_module(f"ray.rllib.algorithms.{algorithm.lower()}")
    return getattr(module, f"{algorithm}Config")()


def default_there(algorithm: str, option: str) -> Any:
    """Of the algorithm, of its models, or of all models."""
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    config = rllib(algorithm)
    models = vars(DefaultModelConfig()) | config._model_config_auto_includes
    return models[option] if option in models else getattr(config, option)


def default_here(parameter: str, algorithms: list[str]) -> Any:
    for model in (ExpertConfig() if algorithms == ["PPO"] else TrainingConfig(), EvaluationConfig()):
        found: Any = model
        for name in parameter.split("."):
            found = getattr(found, name, NOT_THERE) if isinstance(found, BaseModel) else NOT_THERE
        if found is not NOT_THERE:
            return found
    raise AssertionError(f"There is no parameter {parameter}.")


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{'+'.join(row.options)} {'+'.join(row.algorithms)} {row.there}")
def test_a_default_is_what_the_table_says(row: Row) -> None:
    assert {(name, option): default_there(name, option) for name in row.algorithms for option in row.options} == {
        (name, option): row.there for name in row.algorithms for option in row.options
    }
    if row.parameters:
        defaults = tuple(default_here(parameter, row.algorithms) for parameter in row.parameters)
        assert (defaults if len(defaults) > 1 else defaults[0]) == row.here
    else:
        assert row.here == NOT_THERE


@pytest.mark.parametrize(("name", "option"), EQUAL, ids=" ".join)
def test_what_the_table_leaves_out_is_equal(name: str, option: str) -> None:
    assert default_there(name, option) == default_here(EQUAL[name, option], [name])


def test_the_table_has_each_option_once_for_each_algorithm() -> None:
    named = [(name, option) for row in rows() for name in row.algorithms for option in row.options]
    assert len(named) == len(set(named)) > 60
    assert not set(named) & set(EQUAL)
    assert {("CQL", "bc_iters"), ("BC", "free_log_std"), ("MARWIL", "free_log_std")} <= set(named)
