"""Which matrices a layer holds and never uses: whatever is put there, its answer stays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.case import Case, same_numbers
from attn_exp.diagnosis.modules import Bound, sounds_like
from attn_exp.diagnosis.roles import restored
from attn_exp.experiment.verdict import BROKEN, HELD, REMARK, Finding

RUNG = "every matrix is used"
NO_OUTPUT = "no_output_projection"


def unused(function: Bound, caller: Caller, case: Case) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of a layer's matrices that change nothing; nothing of one that is not understood.

    One that is called an output projection, of a layer that has no other, is a mistake; others may wait for words that
    nobody gave.
    """
    layer, roles = function.layer, function.roles
    before = None if layer is None or roles is None else caller(case).output
    if layer is None or roles is None or before is None:
        return
    idle = []
    with restored(layer) as own:
        known = {piece.name for pieces in roles.sides.values() for piece in pieces}
        is_off = any(array.ndim > 1 and name in own and not own[name].any() for name, array in roles.neutral.items())
        for name, array in own.items():
            if name in known or is_off or sum(length > 1 for length in array.shape) < 2:
                continue
            layer.put({name: array + np.random.default_rng(31).standard_normal(array.shape)})
            after = caller(case).output
            layer.put({name: array})
            if after is not None and same_numbers(before, after):
                idle.append(name)
    said = f"{', '.join(idle)} changes nothing: it is made and never used"
    if not idle:
        yield Finding(RUNG, HELD), ""
    elif not roles.sides.get("o") and any(sounds_like(name) == "o" for name in idle):
        yield Finding(RUNG, BROKEN, said), NO_OUTPUT
    else:
        yield Finding(RUNG, REMARK, said), ""
