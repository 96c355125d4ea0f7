"""What a check calls: a function, or a layer with the matrices that it was found to hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attn_exp.diagnosis.asking.offer import Offer
from attn_exp.diagnosis.asking.questions import Inside
from attn_exp.diagnosis.matrices.layers import TorchLayer
from attn_exp.diagnosis.matrices.plain_layers import PlainLayer
from attn_exp.diagnosis.matrices.pure_layers import PureLayer
from attn_exp.diagnosis.matrices.roles import Roles
from attn_exp.experiment.verdict import Verdict

Layer = TorchLayer | PureLayer | PlainLayer


@dataclass(frozen=True)
class Bound:
    """What is called: a function, or a module with its matrices; `origin` tells which library it comes from.

    `layer` and `roles` are those of a module whose matrices were found by what they do; `named` holds the matrices that
    the names of its parameters say, where those are others. `given` are the arguments that every call fills, and
    `masked` those for masks that no question fills. `again` makes a layer of the same class in other sizes, if that can
    be done. `look` returns the verdict on what is seen of the attention inside, if it can be seen. `has_tables`: it
    takes the angles of rotary positions. `written`: the arguments with which its class made it, in brackets, where
    they can be written.
    """

    call: Callable[..., Any]
    origin: Any
    offer: Offer | None = None
    inside: Inside | None = None
    layer: Layer | None = None
    roles: Roles | None = None
    named: Inside | None = None
    given: tuple[str, ...] = ()
    again: Callable[[], Bound | None] = lambda: None
    masked: tuple[str, ...] = ()
    look: Callable[[], Verdict | None] = lambda: None
    has_tables: bool = False
    written: str = ""
