import pickle

import pytest

from offline_core import errors
from offline_core.errors import ConfigError, CorruptFileError, DataError, NonFiniteError, OfflineError, StorageError, within


def test_error_carries_what_failed_as_data_also_to_another_process() -> None:
    error = NonFiniteError("NaN in 'rewards'", uri="s3://b/d", episode=7, column="rewards", step=3)

    sent = pickle.loads(pickle.dumps(error))

    assert (type(sent), str(sent)) == (NonFiniteError, "NaN in 'rewards'")
    assert (sent.uri, sent.episode, sent.column, sent.step) == ("s3://b/d", "7", "rewards", 3)


def test_every_error_can_be_sent() -> None:
    for kind in (kind for name, kind in vars(errors).items() if name.endswith("Error")):
        assert pickle.loads(pickle.dumps(kind("what", uri="u"))).uri == "u"
        assert kind("what").uri is None


def test_within_adds_the_place_and_keeps_what_the_error_knows() -> None:
    with (
        pytest.raises(NonFiniteError, match=r"^Column 'rewards': /d/f: NaN$") as caught,
        within(column="rewards"),
        within(uri="/d/f"),
    ):
        raise NonFiniteError("NaN", episode="e", uri="/the/cause")

    assert (caught.value.uri, caught.value.episode, caught.value.column) == ("/the/cause", "e", "rewards")


def test_within_leaves_errors_that_are_no_data_errors() -> None:
    with pytest.raises(StorageError, match=r"^full$"), within(uri="/d"):
        raise StorageError("full")


class WrongRewardError(DataError):
    """A user's own, with arguments of its own."""

    def __init__(self, value: float, *, limit: float) -> None:
        super().__init__(f"{value} is above {limit}")


def test_within_turns_a_users_own_error_into_its_base_class() -> None:
    with pytest.raises(DataError, match=r"^the file: 3.0 is above 2.0$") as caught, within("the file"):
        raise WrongRewardError(3.0, limit=2.0)

    assert type(caught.value) is DataError


def test_method_keeps_the_class_of_any_error() -> None:
    outer = ConfigError("wrong", column="a").within("Policy p", uri="p", column="b")

    assert (type(outer), str(outer), outer.uri, outer.column) == (ConfigError, "Policy p: wrong", "p", "a")
    assert isinstance(CorruptFileError("x").within("y"), OfflineError)
