"""YAML from a file or a setting, bounded: a few lines can stand for more values than fit into any memory."""

from __future__ import annotations

import re
from typing import Any

import yaml

from offline_core.errors import first_line
from offline_core.secrets import masked_text

MAX_BYTES = 2**20
MAX_VALUES = 100_000
"""Most values of a file, with every alias written out."""


_BOOL = "tag:yaml.org,2002:bool"
_QUOTED = re.compile(r"'([^']*)'|\"[^\"]*\"")
"""Words of the file itself, single signs such as ',', and kinds of words, which are '<in brackets>'."""
_KIND_OR_SIGN = re.compile(r"<[a-z ]+>|\W")


class _Loader(yaml.SafeLoader):
    """YAML 1.2's flags: `on`, `off`, `yes` and `no` are texts, keys of joins and categories for example."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("true|True|TRUE|false|False|FALSE"), [*"tTfF"])


def load_yaml(text: str | bytes) -> Any:
    """The values; no tags but those of YAML itself.

    Raises:
        ValueError: it is no YAML, too large, or nested too deep; the message has no name of a file.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"it has {len(text):,} bytes, where {MAX_BYTES:,} are the most")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _values(node, {}) > MAX_VALUES:
            raise ValueError(f"it stands for more than {MAX_VALUES:,} values; write it without aliases")
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise ValueError(_told(error)) from None
    except (yaml.YAMLError, OverflowError, AttributeError) as error:  # the last two of dates and numbers that are none
        raise ValueError(masked_text(first_line(error))) from None
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _told(error: yaml.MarkedYAMLError) -> str:
    """What is wrong, and where, without the line or words of it: these may be a secret."""
    problem = error.problem or error.context or "it cannot be read"
    problem = _QUOTED.sub(lambda quoted: quoted[0] if _KIND_OR_SIGN.fullmatch(quoted[1] or "") else "…", problem)
    problem = problem.replace("but got '<stream end>'", "but the file ends")
    mark = error.problem_mark or error.context_mark
    return problem if mark is None else f"{problem} in line {mark.line + 1}, column {mark.column + 1}"


def _values(node: yaml.Node, counted: dict[int, int]) -> int:
    """How many values a node stands for; each node is visited once."""
    if id(node) in counted:
        if not counted[id(node)]:
            raise ValueError("an alias leads into itself")
        return counted[id(node)]
    counted[id(node)] = 0  # until it is done
    children = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
    counted[id(node)] = 1 + sum(_values(child, counted) for child in children)
    return counted[id(node)]
