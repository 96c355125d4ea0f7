"""Attention, computed in several forms, each checked against a reference, and told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attn_exp.functional import Traced, attention, trace

__all__ = ["Traced", "attention", "trace"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: the command line needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'attn_exp' has no attribute {name!r}")
    from attn_exp import functional  # noqa: PLC0415 - see above

    return getattr(functional, name)
