"""The callable that a check tests: a function, or a layer with the matrices found in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attn_exp.diagnosis.asking.offer import Offer
from attn_exp.diagnosis.asking.questions import Inside


@dataclass(frozen=True)
class Bound:
    """A callable that takes heads or x, and `origin`, the object that it calls.

    `offer` says what it takes. For a layer, `inside` holds its matrices, `made` is the Python expression that built it,
    and `unknown` names optional arguments that no case sets.
    """

    call: Callable[..., Any]
    origin: Any
    offer: Offer
    inside: Inside | None = None
    made: str = ""
    unknown: tuple[str, ...] | None = None
