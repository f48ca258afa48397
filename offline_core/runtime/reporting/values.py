"""Values as people read them."""

from __future__ import annotations

from offline_core.secrets import masked_text


def text_of(value: object) -> str:
    """A value as one line of text, without secrets; numbers with three digits or thousands."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return _number(value)
    return masked_text(" ".join(str(value).split()))


def _number(value: float) -> str:
    if value == 0 or not abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.3g}"
