"""What the numbers of a step are called, wherever people read of them: by the mapping of the import, or by index from 0."""

from __future__ import annotations

from offline_core.data.episodes import columns
from offline_core.data.inputs.input_columns import InputColumns

IS = " = "
"""Between a column and the category that a number of it stands for, which is 1 there and else 0."""


def number_names(path: str, count: int, made_of: InputColumns | None = None) -> list[str]:
    """Names of the `count` numbers of a column, in C order: `sensors.tout` if mapped, else `obs[0]`; `rewards` of a scalar.

    Arguments:
        path: of the column, `obs/position` in dicts.
        made_of: what the observations of the dataset are made of.
    """
    if path == columns.OBS and made_of is not None and (mapped := _mapped_names(made_of, count)) is not None:
        return mapped
    return [path] if count == 1 else [f"{path}[{number}]" for number in range(count)]


def _mapped_names(made_of: InputColumns, count: int) -> list[str] | None:
    """The mapped columns, a category each of those in one-hot form, and the numbers of a vector that is the only one.

    None if there are not `count` names, or two are equal.
    """
    names: list[str] = []
    for name in made_of.obs:
        encoding = made_of.steps.encode.get(name)
        if encoding is None or encoding.form != "one_hot" or encoding.categories == "auto":
            names.append(name)
        else:
            names += [f"{name}{IS}{category}" for category in encoding.known] + ["other " + name] * encoding.other
    if len(names) == 1 < count:
        names = [f"{names[0]}[{number}]" for number in range(count)]
    return names if len(names) == count == len({*names} - {*columns.STEP_COLUMNS}) else None
