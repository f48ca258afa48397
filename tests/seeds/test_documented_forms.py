"""Every documented form has a test whose name begins with the number of its point and says the form.

Tests beside this one run them on small data. What only a slow or large test can prove is listed here, with the test.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROVEN_ELSEWHERE = {
    "01 PPO masters the environment": "tests/experts/test_train.py::test_the_default_masters_cartpole",
    "02 a recording in the cloud": "tests/object_storage/test_flow.py::test_the_chain_in_a_bucket_is_the_chain_on_disk",
    "02 several output paths, whatever writes": (
        "tests/storage/test_filesystems.py::test_operations_refuse_several_outputs_before_anything_is_done"
    ),
    "03 RLlib trains on both formats of ours": "tests/interop/test_rllib.py::test_rllibs_bc_trains_on_a_dataset_written_here",
    "08 BC to the environment's own target": "tests/learning/test_train.py::test_a_controller_is_cloned",
    "08 estimated Q is right": "tests/learning/algorithms/test_dqn.py::test_values_of_a_small_world_are_found",
    "09 N learners by DDP": "tests/learning/test_group.py::test_two_learners_learn_what_one_learns",
    "09 a learner that is lost": "tests/learning/test_group.py::test_a_learner_that_dies_is_started_again_and_nothing_changes",
    "09 learners on several machines": "tests/cluster/test_cluster.py::test_a_node_is_lost_while_learning",
    "12 gs": "tests/object_storage/test_gcs.py::TestGoogle",
    "12 abfs": "tests/object_storage/test_azure.py::TestAzure",
    "12 Ray Data reads from a bucket": "tests/object_storage/test_imports.py::test_ray_data_reads_where_we_would",
    "12 data larger than the machine": "tests/object_storage/test_streaming.py::test_data_of_three_times_the_object_store",
    "13 text to episodes, and frames of tokens": "tests/examples/test_text.py::test_three_tokens_foretell_what_one_does_not",
    "13 image files": "tests/examples/test_images.py::test_shapes_are_named",
    "13 MARWIL as connectors": "tests/examples/test_connectors.py::test_marwils_sequence_trains_as_its_file_says",
    "14 Prefect's UI with plots and tables": (
        "tests/tasks/test_artifacts.py::test_a_card_is_in_prefect_with_its_picture_and_beside_the_version_without"
    ),
    "14 Prefect's UI in a browser": "tests/e2e/test_browser.py::test_a_card_is_shown_with_its_picture_and_its_lineage",
    "15 a clone learns faster than nothing": "tests/experts/test_start.py::test_a_clone_learns_faster_than_nothing",
}


@functools.cache
def names(file: Path) -> set[str]:
    """What a module defines, without importing it."""
    return {node.name for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize("form", PROVEN_ELSEWHERE)
def test_what_is_proven_elsewhere_is_there(form: str) -> None:
    path, _, name = PROVEN_ELSEWHERE[form].partition("::")
    assert name in names(ROOT / path)


@pytest.mark.parametrize("number", range(1, 16))
def test_each_point_has_its_tests(number: int) -> None:
    [file] = Path(__file__).parent.glob(f"test_{number:02}_*.py")
    tests = {name for name in names(file) if name.startswith("test_")}
    assert tests and all(name.startswith(f"test_{number:02}_") for name in tests)
