"""A causal mask that a layer makes, or keeps, where each query sees all keys: somebody forgot to put it on the scores.

Answers alone are those of plain attention, which may be meant. A triangle among the operations of the call, or among
what a module keeps and no code reads, says that it is not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.uses import is_of_a_library
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.code import watching, watching_jax, watching_numpy
from attn_exp.diagnosis.code.source import tree_of
from attn_exp.diagnosis.code.watching import Operation
from attn_exp.diagnosis.making.told_sizes import may_be_causal
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.experiment.verdict import BROKEN, Finding, Verdict
from attn_exp.own_code import OwnFunction, held

LEFT_OUT, IGNORED = "a causal mask of its own", "causal_ignored"
FEWEST = 3
"""Tokens of which a triangle is none by chance."""


def causal_mask_left_out(
    own: OwnFunction, function: Bound, caller: Caller, case: Case, verdict: Verdict
) -> Iterator[tuple[Finding, str]]:
    """Yield a finding if a layer makes a causal mask that changes nothing. Skip layers that take a causal flag.

    A layer that keeps a mask for another way of calling reads it somewhere.
    """
    is_plain = verdict.passed and not verdict.right_under and not caller.request.masks
    if not is_plain or may_be_causal(own) or any(caller.offer.takes(role) for role in ("causal", "mask")):
        return
    keys = case.given.keys
    if keys >= FEWEST and any(
        not one.is_of_x and one.said.shape[-2:] == (keys, keys) and is_triangle(one.said)
        for one in operations_of(caller, case)
    ):
        yield Finding(LEFT_OUT, BROKEN, "the call makes one, and each query sees all keys"), IGNORED
        return
    module = getattr(function.layer, "module", None)
    kept = [name for name, array in buffers_of(module) if is_triangle(array)]
    never_read = [name for name in kept if not is_read(module, name.rpartition(".")[2])]
    if never_read:
        said = f"{', '.join(never_read)} is one, its code never reads it, and each query sees all keys"
        yield Finding(LEFT_OUT, BROKEN, said), IGNORED


INPUTS = ("q", "k", "v", "x", "memory")


def operations_of(caller: Caller, case: Case) -> list[Operation]:
    """Return the operations of a call; none if its library cannot be traced."""
    with suppress(Exception), held(), np.errstate(all="ignore"):
        arguments = caller.arguments(case)
        if caller.library.name == "torch":
            sources = [arguments[role] for role in INPUTS if role in arguments]
            return watching.watched(lambda: caller.call(arguments), sources)[0]
        if caller.library.name == "numpy":
            notes = watching_numpy.Notes({})
            with watching_numpy.watching(notes):
                caller.call({role: notes.of_x(one) if role in INPUTS else one for role, one in arguments.items()})
            if notes.operations or "jax" not in sys.modules:
                return notes.operations
        if caller.library.name in ("jax", "numpy"):  # JAX takes arrays of NumPy too
            of_jax = watching_jax.Notes({})
            positional, named = caller.spoken(arguments)
            theirs = {name for role, name in caller.offer.parameters.items() if role not in INPUTS}
            call: Callable[..., Any] = lambda _, first, others: caller.function(*first, **others)  # noqa: E731
            watching_jax.noted(call, {}, positional, named, theirs, of_jax)
            return of_jax.operations
    return []


def is_triangle(array: Array) -> bool:
    """Say whether matrices hold one number up to the diagonal and another behind it, or before it and from it on."""
    if array.ndim < len("ts") or array.shape[-1] != array.shape[-2] or array.shape[-1] < FEWEST:
        return False
    first = array.reshape(-1, *array.shape[-2:])
    later = np.triu(np.ones(array.shape[-2:], bool), 1)
    with np.errstate(all="ignore"):
        return any(
            bool((first == np.where(places, first[:, -1:, :1], first[:, :1, -1:])).all())
            and bool((first[:, 0, -1] != first[:, -1, 0]).all())
            for places in (~later, later.T)
        )


def buffers_of(module: Any) -> list[tuple[str, Array]]:
    """Return the arrays that a module of PyTorch keeps and nobody trains, by their names."""
    kind: Any = getattr(sys.modules.get("torch.nn"), "Module", ())
    if not isinstance(module, kind):
        return []
    return [(name, one.detach().cpu().double().numpy()) for name, one in module.named_buffers()]


def is_read(module: Any, name: str) -> bool:
    """Say whether the code of a module's classes reads what it keeps by a name; of code that nobody can read it may."""
    homes = {home for one in module.modules() for home in type(one).__mro__ if not is_of_a_library(home)}
    for home in homes:
        tree = None
        with suppress(OSError, TypeError, SyntaxError, IndentationError):
            tree = tree_of(home)
        if tree is None:
            return True
        of_self = [one for one in ast.walk(tree) if isinstance(one, ast.Attribute) and one.attr == name]
        texts = [one for one in ast.walk(tree) if isinstance(one, ast.Constant) and one.value == name]
        if len(texts) > 1 or any(isinstance(one.ctx, ast.Load) and not is_of_a_module(one) for one in of_self):
            return True  # one text registers it
    return False


def is_of_a_module(one: ast.Attribute) -> bool:
    """Say whether a name is a function of a library's, as `torch.tril`."""
    return isinstance(one.value, ast.Name) and one.value.id in LIBRARIES


LIBRARIES = ("torch", "np", "numpy")
