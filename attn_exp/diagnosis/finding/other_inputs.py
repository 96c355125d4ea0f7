"""An argument of no known name that takes what a layer's keys and values are made of: `ctx`, `encoder_out`, `states`.

What it is an answer tells. With x itself for it the answer is that without it. With another input of more tokens it
has a row for each query, which no other query changes; what takes as many tokens as queries alone makes some of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.offer import is_starred, parameters_of, role_of
from attn_exp.diagnosis.asking.sides import side_of_name
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.calling.function_layers import names_cache
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.errors import UserError

MORE = 4
"""So many tokens the other input has more than x."""


def with_its_memory(caller: Caller, function: Bound, case: Case) -> Caller:
    """Return the caller that hands another input over, where a function of x and matrices has an argument for one."""
    offer = caller.offer
    if offer.core or function.inside is not None or offer.takes("memory") or case.given.x is None:
        return caller
    for name in free_names(function, set(offer.parameters.values())):
        words = {**offer.parameters, "memory": name}
        said = "; ".join(filter(None, (offer.said, f"{name} as another input")))
        other = replace(offer, parameters=words, defaults={**offer.defaults, "memory": None}, said=said)
        asked = replace(caller, offer=other)
        with suppress(Exception):
            if is_memory(asked, case):
                return asked
    return caller


def free_names(function: Bound, taken: set[str]) -> Sequence[str]:
    """Return the arguments that a function can do without and whose names say nothing else."""
    called = getattr(function.call, "function", function.call)
    sources = getattr(function.call, "sources", {})
    with suppress(UserError):
        return [
            given.name for given in parameters_of(called, "")
            if given.default is None and not is_starred(given) and given.name not in taken
            and given.name not in sources and not role_of(given.name) and not names_cache(given.name)
            and side_of_name(given.name) in ("", "x", "kv")
        ]  # fmt: skip
    return []


def is_memory(caller: Caller, case: Case) -> bool:
    """Say whether what a function is given as a memory is what its keys and values are made of, or some of them."""
    x = case.given.x
    assert x is not None
    alone, of_itself = caller(case).output, asked(caller, case, x, x)
    if alone is None or of_itself is None or not np.array_equal(alone, of_itself):
        return False
    rng = np.random.default_rng(101)
    longer = rng.standard_normal((len(x), x.shape[1] + MORE, x.shape[2]))
    said = asked(caller, case, x, longer)
    if said is None:
        other = asked(caller, case, x, rng.standard_normal(x.shape))
        return other is not None and other.shape == alone.shape and not np.allclose(other, alone)
    moved = asked(caller, case, np.concatenate([x[:, :1], x[:, 1:] + 1.0], axis=1), longer)
    if said.shape != alone.shape or moved is None or np.allclose(said, alone):
        return False
    return np.allclose(said[:, 0], moved[:, 0])


def asked(caller: Caller, case: Case, x: Array, memory: Array) -> Array | None:
    """Return the answer to x beside another input."""
    return caller(replace(case, given=replace(case.given, x=x, memory=memory))).output
