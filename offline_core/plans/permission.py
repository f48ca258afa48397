"""What parameters name is allowed here, looked at before anything runs, however deep it is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from offline_core.data.store.allowed_roots import IS_URI, is_limited, uris_in
from offline_core.data.store.location import Location
from offline_core.policies.kind import is_location
from offline_core.runtime.stage import STAGES
from offline_core.runtime.user_code import check_imports

LOCATIONS = {argument.name for stage in STAGES.values() for argument in stage.arguments if argument.is_place}
"""Parameters of stages that are locations."""


def check_permitted(parameters: Mapping[str, Any], marks: Mapping[str, Iterable[Any]] = MappingProxyType({})) -> None:
    """Check the locations and modules that parameters name; the fields of configs say themselves whether they are locations.

    Arguments:
        marks: of other parameters by name; `IsUri` says that one names locations.

    Raises:
        LocationError: `OFFLINE_ROOTS` does not allow one.
        ConfigError: `OFFLINE_IMPORTS` does not allow one.
    """
    check_imports(*parameters.values())
    if is_limited():
        for name, value in parameters.items():
            for uri in uris_in(value, (IS_URI,) if name in LOCATIONS else marks.get(name, ())):
                if is_location(uri):
                    Location.of(uri)
