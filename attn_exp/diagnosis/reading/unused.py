"""Which matrices a layer holds and never uses, as its answer stays whatever is put there; and heads that are one."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.offer import parameters_of, plain
from attn_exp.diagnosis.asking.unread import never_read
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.diagnosis.matrices.idle import (
    RUNG,
    diagonals,
    idle_matrices,
    is_of_any,
    never_called,
    said_of_diagonals,
    said_of_idle,
    waiting,
)
from attn_exp.diagnosis.matrices.module_sizes import about_heads
from attn_exp.diagnosis.matrices.named_matrices import sounds_like
from attn_exp.diagnosis.reading.read_layers import is_averaged
from attn_exp.experiment.verdict import BROKEN, HELD, REMARK, Finding
from attn_exp.own_code import OwnFunction


def unused(function: Bound, caller: Caller, case: Case) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of a layer's matrices that change nothing; nothing of one that is not understood.

    One that may be an output projection by its name and its sizes, of a layer that has no other, is a mistake, and so
    is one of a side that is made with the matrix of another, and are those of q, k and v together; others may wait for
    words that nobody gave.
    """
    layer, roles = function.layer, function.roles
    if layer is None or roles is None:
        return
    known = {piece.name for pieces in roles.sides.values() for piece in pieces}
    found = idle_matrices(layer, lambda: caller(case).output, known)
    yield from said_of_diagonals(diagonals(layer, lambda: caller(case).output))
    later = waiting(layer, found, lambda: caller(case).output) if found else set()
    if later:
        yield Finding(RUNG, REMARK, f"{', '.join(sorted(later))} changes nothing until another input is given"), ""
    found = {name: array for name, array in found.items() if name not in later}
    idle = [*found, *never_called(layer)]
    places = {side: [(piece.name, piece.columns) for piece in roles.sides[side]] for side in "qkv"}
    if not idle:
        if not later:
            yield Finding(RUNG, HELD), ""
        return
    as_values = [sounds_like(piece.name) for piece in roles.sides["v"]]  # x itself is mixed where that of the output is
    are_raw = {*as_values} == {"o"} and all(sounds_like(name) == "v" for name in idle)
    is_output = not roles.sides.get("o") and (
        any(sounds_like(name) == "o" for name in idle)
        or (len(idle) == len(found) == 1 and may_be_output(idle[0], found[idle[0]], case))
    )
    through = bool(
        {piece.name for piece in roles.sides.get("o", ())} & {name for side in places.values() for name, _ in side}
    )
    yield from said_of_idle(
        idle, lambda side, other: places[side] == places[other], are_raw=are_raw, is_output=is_output, through=through
    )


def all_one_head(function: Bound) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of a layer whose heads are all the same: the same values several times side by side."""
    if function.roles is None or function.roles.heads > 1 or is_averaged(function):
        return
    values = [(piece.name, column) for piece in function.roles.sides["v"] for column in piece.columns]
    times = len(values) // len(set(values))
    if times > 1:
        said = f"the same {len(set(values))} numbers are side by side {times} times, with the same weights"
        yield Finding("each head is another", BROKEN, said), "single_head"


def heads_never_read(own: OwnFunction, function: Bound) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of a layer of one head whose class is told how many there are, and never reads it."""
    if not inspect.isclass(own.function) or function.roles is None or function.roles.heads > 1:
        return
    words = [one.name for one in parameters_of(own.function, own.name) if about_heads(plain(one.name))]
    for word in sorted(never_read(own.function.__init__, words)):
        yield (
            Finding("each head is another", BROKEN, f"{word} is told and never read: there is one head"),
            "single_head",
        )


def first_of_several(function: Bound) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of a layer whose heads share one key where its matrix makes several.

    What makes more than a key and a value for each head makes something else too, such as an MLP beside attention.
    """
    layer, roles = function.layer, function.roles
    if layer is None or roles is None or roles.groups > 1 or roles.heads == 1:
        return
    every = [piece for pieces in roles.sides.values() for piece in pieces]
    for piece in roles.sides["k"]:
        columns = piece.whole(layer.parameters[piece.name]).shape[1]
        read = {column for one in every if one.name == piece.name for column in one.columns}
        sides = sum(any(one.name == piece.name for one in roles.sides[side]) for side in "kv")
        more = (columns - len(read)) // len(piece.columns)
        if 0 < more <= sides * (roles.heads - 1) and columns % len(piece.columns) == 0:
            said = f"{piece.name} makes {columns} numbers, and every head reads the same {len(piece.columns)}"
            yield Finding("every key is read", BROKEN, said), "kv_heads_first"


def may_be_output(name: str, array: Array, case: Case) -> bool:
    """Say whether a matrix takes the heads side by side, and its name speaks of any layer."""
    inner = len(case.given.arrays["W_q"][0])
    return inner in array.shape and is_of_any(name)
