"""What a check calls: a function, or a layer with the matrices that it was found to hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attn_exp.diagnosis.asking.offer import Offer
from attn_exp.diagnosis.asking.questions import Inside


@dataclass(frozen=True)
class Bound:
    """What is called: a function of heads or of x, and `origin`, which it calls.

    `offer` is what it takes, where its own signature does not say it. Of a layer, `inside` are the matrices, `made` is
    how it was built, as Python, and `unknown` are optional arguments that no question fills.
    """

    call: Callable[..., Any]
    origin: Any
    offer: Offer | None = None
    inside: Inside | None = None
    made: str = ""
    unknown: tuple[str, ...] | None = None
