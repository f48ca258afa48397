"""Episode ⇄ bytes: everything comes back, every form RLlib ever wrote is read, and nothing that is read is believed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import msgpack
import msgpack_numpy
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offline_core.data.episodes import Episode, decode, encode, space_to_json
from offline_core.errors import CorruptFileError, DataError, EpisodeError, SpaceError, UnsafeDataError
from tests.cases import examples
from tests.data.episodes.strategies import counting, episode_lists, info_dicts, leaves

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


# ---- Round trips -----------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100), suppress_health_check=SLOW)
@given(episode_lists(count=st.just(1), steps=st.integers(0, 4), lookback=st.integers(0, 2), spaces_known=st.booleans()))
def test_every_episode_comes_back_equal(episodes: list[Episode]) -> None:
    (episode,) = episodes
    again = decode(encode(episode))
    assert again == episode
    assert [leaf.dtype for leaf in leaves(again)] == [leaf.dtype for leaf in leaves(episode)]
    assert again.observation_space == episode.observation_space
    assert again.action_space == episode.action_space
    assert again.validate() is again


@settings(max_examples=examples(60), suppress_health_check=SLOW)
@given(st.lists(info_dicts(), min_size=4, max_size=4), info_dicts())
def test_infos_and_custom_data_come_back(infos: list[dict[Any, Any]], custom_data: dict[Any, Any]) -> None:
    again = decode(encode(counting(3, infos=infos, custom_data=custom_data)))
    assert again == counting(3, infos=infos, custom_data=custom_data)
    assert [list(info) for info in again.get_infos()] == [list(info) for info in infos]


@pytest.mark.parametrize("t_started", [0, 5])
@pytest.mark.parametrize("lookback", [0, 3])
@pytest.mark.parametrize("steps", [0, 1, 6])
def test_infos_that_are_all_empty_are_no_infos(steps: int, lookback: int, t_started: int) -> None:
    episode = counting(steps, lookback=lookback, t_started=t_started, infos=[{}] * (steps + lookback + 1))
    again = decode(encode(episode))
    assert again.infos is None
    assert again.get_infos() == [{}] * (steps + 1)
    assert again == episode


@pytest.mark.parametrize("steps", [1, 15, 16, 70_000])
def test_one_info_among_empty_ones_survives_whatever_the_number(steps: int) -> None:
    """The three sizes of msgpack array headers, all of which the shortcut for empty infos knows."""
    infos: list[dict[str, Any]] = [{} for _ in range(steps + 1)]
    assert decode(encode(counting(steps, infos=infos))).infos is None
    infos[steps // 2] = {"x": 1}
    found = decode(encode(counting(steps, infos=infos))).infos
    assert found is not None
    assert [i for i, info in enumerate(found) if info] == [steps // 2]


def test_decoded_arrays_cannot_be_written_to() -> None:
    episode = decode(encode(counting(100)))
    assert not any(leaf.flags.writeable for leaf in leaves(episode))


# ---- What cannot be stored -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"observations": np.array([None] * 7)}, "Python objects"),
        ({"actions": np.array([{}] * 6)}, "Python objects"),
        ({"extras": {"state": np.array([object()] * 6)}}, "Python objects"),
        ({"infos": [{"x": np.array([None])}] * 7}, "Python objects"),
        ({"infos": [{"x": np.array([(1, None)], [("a", "i4"), ("b", "O")])}] * 7}, "Python objects"),
        ({"infos": [{"x": {1, 2}}] * 7}, "set"),
        ({"custom_data": {"path": Path()}}, "Path"),
        ({"custom_data": {"big": 2**70}}, "cannot be stored"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_the_name_of_the_episode(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(EpisodeError, match=named) as caught:
        encode(counting(**changes))
    assert "count" in str(caught.value)


def test_spaces_that_cannot_be_stored_are_refused() -> None:
    with pytest.raises(SpaceError, match="Sequence"):
        encode(counting(observation_space=gym.spaces.Sequence(gym.spaces.Discrete(2))))


# ---- Foreign forms ---------------------------------------------------------------------------------------------------


def foreign(*, spaces: bool = True, packer: Any = msgpack_numpy.encode, **changes: Any) -> bytes:
    """The state of three steps in list form, with a lookback of one, as RLlib's own code lays it out."""

    def listed(items: list[Any]) -> dict[str, Any]:
        return {"data": items, "lookback": 1, "finalized": False, "space": None}

    box, discrete = gym.spaces.Box(-9, 9, (2,)), gym.spaces.Discrete(200)
    state: dict[str, Any] = {
        "id_": "count",
        "agent_id": None,
        "module_id": None,
        "multi_agent_episode_id": None,
        "observations": listed([np.float32([t, -t]) for t in range(-1, 4)]),
        "actions": listed([np.int64(100 + t) for t in range(-1, 3)]),
        "rewards": listed([t / 2 for t in range(-1, 3)]),
        "infos": listed([{"t": t} for t in range(-1, 4)]),
        "extra_model_outputs": {"action_logp": listed([np.float32(-t) for t in range(-1, 3)])},
        "is_terminated": True,
        "is_truncated": False,
        "t_started": 0,
        "t": 3,
        "_observation_space": space_to_json(box) if spaces else None,
        "_action_space": space_to_json(discrete) if spaces else None,
        "_start_time": 1.5,
        "_last_step_time": 2.5,
        "custom_data": {"seed": 3},
    }
    for key, value in changes.items():
        if value is ...:
            del state[key]
        else:
            state[key] = value
    return bytes(msgpack.packb(state, default=packer))


EXPECTED = counting(3, lookback=1, terminated=True, custom_data={"seed": 3})


def numpy_form(array: Any, lookback: int = 1) -> dict[str, Any]:
    return {"data": array, "lookback": lookback, "finalized": True, "space": None}


def list_form(items: Any, lookback: int = 1) -> dict[str, Any]:
    return {"data": items, "lookback": lookback, "finalized": False, "space": None}


def test_the_list_form_with_lookback_is_read() -> None:
    episode = decode(foreign()).validate()
    assert episode == EXPECTED
    assert episode.observations.dtype == np.float32
    assert episode.actions.dtype == np.int64
    assert episode.observation_space == gym.spaces.Box(-9, 9, (2,))
    assert episode.action_space == gym.spaces.Discrete(200)


def test_the_numpy_form_that_rllib_writes_is_read() -> None:
    data = foreign(observations=numpy_form(EXPECTED.observations), actions=numpy_form(EXPECTED.actions))
    assert decode(data) == EXPECTED


def test_keys_that_are_text_instead_of_bytes_are_read() -> None:
    def text_keys(value: Any) -> Any:
        packed = msgpack_numpy.encode(value)
        return packed if packed is value else {key.decode(): inner for key, inner in packed.items()}

    assert decode(foreign(packer=text_keys)) == EXPECTED


def test_no_extras_and_old_fields_are_read() -> None:
    assert decode(foreign(extra_model_outputs=None)).extras == {}
    assert decode(foreign(extra_model_outputs={})).extras == {}
    gaps = decode(foreign(infos=list_form([{"a": 1}, None, {}, {}, {}])))
    assert gaps.get_infos() == [{}, {}, {}, {}] and gaps.infos == [{"a": 1}, {}, {}, {}, {}]
    old = decode(foreign(custom_data=..., _temporary_timestep_data={"a": [1]}))
    assert old.custom_data == {}
    assert old.rewards.tolist() == EXPECTED.rewards.tolist()


def test_the_spaces_are_found_in_the_buffers_too() -> None:
    box = space_to_json(gym.spaces.Box(-9, 9, (2,)))
    items = [np.float32([t, -t]) for t in range(-1, 4)]
    episode = decode(foreign(spaces=False, observations=list_form(items) | {"space": box}))
    assert episode.observation_space == gym.spaces.Box(-9, 9, (2,))
    assert episode.action_space is None


def test_dicts_and_tuples_are_read_in_both_forms() -> None:
    stepwise = [{"image": np.uint8([[t, t]]), "pair": (np.float32([t]), np.int64(t))} for t in range(1, 6)]
    whole = {
        "image": np.uint8([[[t, t]] for t in range(1, 6)]),
        "pair": (np.float32([[t] for t in range(1, 6)]), np.arange(1, 6)),
    }
    listed, arrays = (
        decode(foreign(spaces=False, observations=list_form(stepwise))),
        decode(foreign(spaces=False, observations=numpy_form(whole))),
    )
    assert listed == arrays
    assert isinstance(listed.observations["pair"], tuple)
    assert listed.observations["image"].shape == (5, 1, 2)
    assert listed.observations["pair"][1].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(-1, 1, (2, 3), np.float64),
        gym.spaces.Discrete(3),
        gym.spaces.Text(4),
        gym.spaces.Dict({"a": gym.spaces.Discrete(2), "b": gym.spaces.Tuple([gym.spaces.Box(0, 255, (4,), np.uint8)])}),
    ],
    ids=str,
)
def test_an_episode_that_was_only_reset_knows_the_shape_of_its_actions(space: gym.Space[Any]) -> None:
    data = foreign(
        observations=list_form([np.float32([0, 0])], 0),
        actions=list_form([], 0),
        rewards=list_form([], 0),
        infos=list_form([{}], 0),
        extra_model_outputs=None,
        _action_space=space_to_json(space),
        t=0,
    )
    episode = decode(data).validate()
    assert len(episode) == 0
    assert episode.action_space == space


# ---- What is not whole -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"observations": list_form([np.float32([0, 0])] * 3)}, "3 observations .* 5 expected"),
        ({"actions": numpy_form(np.zeros(9))}, "9 actions .* 4 expected"),
        ({"infos": list_form([{"a": 1}])}, "1 infos; 5 expected"),
        ({"infos": list_form([1, 2, 3, 4, 5])}, "int where a dict"),
        ({"infos": list_form([{"a": 1}, 0, {}, {}, {}])}, "int where a dict"),
        ({"extra_model_outputs": {"vf": list_form([1.0])}}, "1 extra vf"),
        ({"actions": list_form([np.int64(1)] * 4, 2)}, "actions have a lookback of 2"),
        ({"rewards": list_form([], 1)}, "lookback of 1 does not fit into 0 rewards"),
        ({"rewards": numpy_form(np.zeros((4, 1)))}, "not one number a step"),
        ({"rewards": numpy_form(np.array(["a"] * 4))}, "not one number a step"),
        ({"observations": list_form([np.zeros(2), np.zeros(3)] * 2)}, "observations differ in shape"),
        ({"observations": list_form([{"a": np.zeros(2)}, {"b": np.zeros(2)}])}, "same keys"),
        ({"observations": list_form([[1, 2], [1]])}, "tuples of one length"),
        ({"observations": list_form([None] * 5)}, "NoneType"),
        ({"observations": numpy_form({"a": np.zeros(5), "b": np.zeros(4)})}, "share one leading axis"),
        ({"observations": numpy_form(3)}, "int where an array"),
    ],
)
def test_an_episode_that_is_not_whole_is_refused_by_its_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(EpisodeError, match=named) as caught:
        decode(foreign(**changes))
    assert "Episode count" in str(caught.value)


@pytest.mark.parametrize("key", ["id_", "observations", "actions", "rewards", "infos", "is_terminated", "is_truncated"])
def test_a_missing_field_is_named(key: str) -> None:
    with pytest.raises(CorruptFileError, match=key):
        decode(foreign(**{key: ...}))


@pytest.mark.parametrize(
    "changes",
    [
        {"observations": None},
        {"observations": []},
        {"observations": {"data": 3}},
        {"t_started": float("inf")},
        {"t_started": "x"},
        {"rewards": list_form("abcd")},
        {"rewards": list_form(None)},
        {"custom_data": 5},
        {"extra_model_outputs": [1]},
        {"observations": list_form([np.float32([0, 0])] * 5, float("inf"))},  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_fields_that_make_no_sense_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="Episode count"):
        decode(foreign(**changes))


def test_a_space_that_cannot_be_read_names_the_episode() -> None:
    with pytest.raises(SpaceError, match="Episode count"):
        decode(foreign(_action_space={"space": "maze"}))


@pytest.mark.parametrize("depth", [100, 500, 900, 100_000])
@pytest.mark.parametrize("field", ["observations", "infos", "custom_data", "_action_space"])
def test_values_nested_without_end_are_refused(field: str, depth: int) -> None:
    value = {"lists": "DEEP"} if field.startswith("_") or field == "custom_data" else list_form(["DEEP"] * 5)
    nested = b"\x91" * depth + b"\xc0"
    data = foreign(**{field: value}).replace(msgpack.packb("DEEP"), nested)
    if field == "custom_data" and depth < 1000:
        assert decode(data).rewards.tolist() == EXPECTED.rewards.tolist()
    else:
        with pytest.raises(DataError):
            decode(data)


# ---- Broken bytes ----------------------------------------------------------------------------------------------------


def test_no_prefix_of_an_episode_is_an_episode() -> None:
    data = encode(counting(3))
    for length in range(len(data)):
        with pytest.raises(DataError):
            decode(data[:length])


@pytest.mark.parametrize("tail", [b"\0", b"\xc0", b"garbage"])
def test_bytes_after_the_end_are_refused(tail: bytes) -> None:
    with pytest.raises(CorruptFileError, match="belongs to nothing"):
        decode(encode(counting(3)) + tail)


@settings(max_examples=examples(400))
@given(st.data())
def test_flipped_bytes_raise_data_errors_or_give_an_episode(data: st.DataObject) -> None:
    original = data.draw(st.sampled_from([encode(EXPECTED), foreign(), encode(counting(2, infos=None))]))
    broken = bytearray(original)
    for place in data.draw(st.lists(st.integers(0, len(broken) - 1), min_size=1, max_size=4)):
        broken[place] = data.draw(st.integers(0, 255))
    try:
        episode = decode(bytes(broken))
    except DataError:
        return
    assert len(episode.get_infos()) == len(episode) + 1


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=3) | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "lookback", "finalized", "space", b"nd", b"type", b"kind", b"shape", b"data"]), inner
        )
    ),
    max_leaves=8,
)


@settings(max_examples=examples(300), suppress_health_check=SLOW)
@given(st.dictionaries(st.sampled_from(list(msgpack.unpackb(foreign()))), json_like, min_size=1, max_size=3))
def test_fields_of_any_kind_raise_data_errors_or_give_an_episode(changes: dict[str, Any]) -> None:
    try:
        episode = decode(foreign(**changes))
    except DataError:
        return
    assert len(episode.get_infos()) == len(episode) + 1


@pytest.mark.parametrize(
    "packed",
    [
        {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [10**12], b"data": b"\0" * 8},
        {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2, 10**12], b"data": b"\0" * 8},
        {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [-1, -1], b"data": b"\0" * 8},
        {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2], b"data": b"\0" * 7},
        {b"nd": True, b"type": "<U1000000000", b"kind": b"", b"shape": [1], b"data": b"\0" * 8},
        {b"nd": True, b"type": "V0", b"kind": b"", b"shape": [1], b"data": b"\0" * 8},
        {b"nd": True, b"type": "no such", b"kind": b"", b"shape": [1], b"data": b"\0" * 8},
        {b"nd": True, b"kind": b"", b"shape": [1], b"data": b"\0" * 8},
        {b"nd": False, b"type": "<f4", b"data": b""},
        {b"complex": True, b"data": "one"},
        {b"complex": True},
    ],
    ids=str,
)
def test_arrays_that_claim_what_they_are_not_are_refused(packed: dict[bytes, Any]) -> None:
    with pytest.raises(CorruptFileError):
        decode(foreign(observations=numpy_form(packed)))


# ---- Code in the data ------------------------------------------------------------------------------------------------


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def object_field(payload: bytes, kind: bytes | str = b"O") -> dict[Any, Any]:
    packed = {b"nd": True, b"type": "|O", b"kind": kind, b"shape": [5], b"data": payload}
    return packed if isinstance(kind, bytes) else {key.decode(): value for key, value in packed.items()}


@pytest.mark.parametrize("kind", [b"O", "O"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_bomb_does_not_go_off(tmp_path: Path, protocol: int, kind: bytes | str) -> None:
    marker = tmp_path / "ran"
    payload = pickle.dumps(np.array([Bomb(marker)]), protocol)
    with pytest.raises(UnsafeDataError, match="system"):
        decode(foreign(observations=numpy_form(object_field(payload, kind))))
    assert not marker.exists()
    pickle.loads(payload)
    assert marker.exists(), "the bomb of this test is a dud"


def test_a_pickle_bomb_in_an_info_does_not_go_off(tmp_path: Path) -> None:
    payload = pickle.dumps(Bomb(tmp_path / "ran"))
    with pytest.raises(UnsafeDataError, match="system"):
        decode(foreign(infos=list_form([{"x": object_field(payload)}] * 5)))
    assert not (tmp_path / "ran").exists()


def test_object_arrays_of_numbers_are_read_as_numbers() -> None:
    rows = np.empty(5, object)
    for t in range(-1, 4):
        rows[t + 1] = np.float32([t, -t])
    episode = decode(foreign(observations=numpy_form(rows), rewards=numpy_form(np.array([-0.5, 0, 0.5, 1], object))))
    assert episode == EXPECTED
    assert episode.observations.dtype == np.float32


@pytest.mark.parametrize("dtype", ["|O", [["a", "|O"]], [["a", "<f4"], ["b", [["c", "|O"]]]]])
@pytest.mark.parametrize("kind", [b"", b"V"])
def test_objects_are_not_smuggled_in_by_the_dtype(dtype: Any, kind: bytes) -> None:
    packed = {b"nd": True, b"type": dtype, b"kind": kind, b"shape": [1], b"data": b"A" * 16}
    with pytest.raises((UnsafeDataError, CorruptFileError)) as caught:
        decode(foreign(observations=numpy_form(packed)))
    if kind == b"V" and isinstance(dtype, list):
        assert isinstance(caught.value, UnsafeDataError)


def test_records_within_records_come_back() -> None:
    inner = np.dtype([("a", "<i4"), ("b", [("c", "<f8", (2,)), ("d", "<U3")])])
    record = np.array([(1, ([1.5, 2.5], "x")), (2, ([3.5, 4.5], "yz"))], inner)
    again = decode(encode(counting(1, infos=[{}, {"record": record}]))).get_infos(1)["record"]
    assert again.dtype == inner
    assert again["b"]["c"].tolist() == [[1.5, 2.5], [3.5, 4.5]]
    assert again["b"]["d"].tolist() == ["x", "yz"]
    assert again["a"].tolist() == [1, 2]
