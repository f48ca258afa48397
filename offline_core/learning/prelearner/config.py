"""Parameters of connectors."""

from __future__ import annotations

from pydantic import Field, model_validator

from offline_core.runtime.python_object import PythonObject
from offline_core.runtime.user_code import UserCode


class ConnectorConfig(UserCode):
    """A user's connector, and its position among the others: check_spaces, check_finite, and user connectors by name."""

    name: str | None = Field(None, description="What others call it; None: by the name of the class or function.")
    before: str | None = Field(None, description="Name of the connector that it runs right before.")
    after: str | None = Field(
        None,
        description="Name of the connector that it runs right after. Without a place it runs before check_spaces, after yours "
        "that are listed earlier, so that what it makes is checked.",
    )

    @model_validator(mode="after")
    def _one_place(self) -> ConnectorConfig:
        if self.before is not None and self.after is not None:
            raise ValueError("a connector runs before another one or after it: give one of the two")
        return self

    @property
    def called(self) -> str:
        """Its name."""
        return self.name or (self.path.name if isinstance(self.path, PythonObject) else self.path.partition(":")[2])
