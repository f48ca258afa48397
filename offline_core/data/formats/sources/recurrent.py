"""Convert columns of recurrent SampleBatches, which are stored in sequences, to one value a step."""

from __future__ import annotations

import numpy as np

from offline_core.data.episodes import nested
from offline_core.data.episodes.nested import Nested
from offline_core.errors import SchemaError

SEQ_LENS = "seq_lens"
_IN, _OUT = "state_in", "state_out"


def rows_of_sequences(lengths: Nested, rows: int) -> np.ndarray:
    """(steps,) the rows that are steps; the others are RLlib's padding of sequences to one length.

    Raises:
        SchemaError: `lengths` are not whole numbers, or do not fit the number of rows.
    """
    if not isinstance(lengths, np.ndarray) or lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any():
        raise SchemaError(f"Column {SEQ_LENS!r} must hold the length of each sequence, whole numbers from zero.")
    total, count = int(lengths.sum()), len(lengths)
    if total == rows:
        return np.arange(rows)
    if not count or rows % count or rows // count < lengths.max():
        raise SchemaError(
            f"Column {SEQ_LENS!r} has {total} steps in {count} sequences, but there are {rows} rows: neither these steps "
            "nor sequences padded to one length."
        )
    return np.flatnonzero(np.arange(rows // count) < lengths[:, None])


def states_by_step(arrays: dict[str, Nested], lengths: np.ndarray) -> dict[str, Nested]:
    """The columns with one `state_in_…` a step where there is one a sequence, its initial state.

    Later steps get the `state_out_…` of the previous step, or NaN if that was not recorded.

    Raises:
        SchemaError: a `state_out_…` does not have one value a step, of the shape of its `state_in_…`.
    """
    steps, lengths = int(lengths.sum()), lengths[lengths > 0]
    first = np.cumsum(lengths) - lengths

    def spread(starts: np.ndarray, after: np.ndarray | None) -> np.ndarray:
        if after is None:
            full = np.full((steps, *starts.shape[1:]), np.nan, np.result_type(starts, np.float32))
        else:
            full = np.concatenate([after[:1], after[:-1]])
        full[first] = starts
        return full

    found = dict(arrays)
    for name, tree in arrays.items():
        if name.startswith(_IN) and nested.length(tree, name) == len(lengths) != steps:
            after = arrays.get(out := name.replace(_IN, _OUT))
            if after is None:
                found[name] = nested.map_leaves(lambda leaf: spread(leaf, None), tree)
            else:
                _check_alike(out, after, name, tree, steps)
                found[name] = nested.map_leaves(spread, tree, after)
    return found


def _check_alike(out: str, after: Nested, name: str, starts: Nested, steps: int) -> None:
    expected = {path: (steps, *leaf.shape[1:]) for path, leaf in nested.flatten(starts, "").items()}
    shapes = {path: leaf.shape for path, leaf in nested.flatten(after, "").items()}
    if shapes != expected:
        raise SchemaError(
            f"Column {out!r} has arrays of shape {[*shapes.values()]}; with one {name!r} a sequence it needs one value a step, "
            f"{[*expected.values()]}."
        )
