"""Which matrices of a layer change nothing, and which of its sides is made with the matrix of another then."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.matrices.named_matrices import FILLERS, FUSED, sounds_like
from attn_exp.diagnosis.matrices.roles import Layer, restored
from attn_exp.experiment.verdict import BROKEN, REMARK, Finding

RUNG = "every matrix is used"
INSTEAD = {("k", "q"): "keys_from_queries", ("q", "k"): "queries_from_keys", ("v", "q"): "values_from_queries",
           ("v", "k"): "values_from_keys"}  # fmt: skip
"""The mistake of a side whose own matrix is idle, by the side whose matrix it is made with."""


def idle_matrices(
    layer: Layer, answer: Callable[[], Array | None], known: Collection[str] = ()
) -> dict[str, Array]:  # fmt: skip
    """Return the matrices that leave an answer as it is, whatever is put there; those that are `known` are not tried.

    What is 0 lets through what stands before it, meanwhile.
    """
    idle, rng = dict[str, Array](), np.random.default_rng(31)
    with restored(layer) as own:
        rest = [name for name in matrices_of(own) if name not in known]
        now = {name: own[name] if own[name].any() else rng.standard_normal(own[name].shape) for name in rest}
        layer.put(now)
        before = answer()

        def is_idle(name: str, change: Array) -> bool:
            layer.put({name: now[name] + change})
            after = answer()
            layer.put({name: now[name]})
            return after is not None and before is not None and np.array_equal(before, after, equal_nan=True)

        for name, array in now.items() if before is not None else ():
            change = rng.standard_normal(array.shape)
            if is_idle(name, change):
                idle[name] = array
            for place, part in parts_of_packed(name, array):
                if name not in idle and is_idle(name, np.where(part, change, 0.0)):
                    idle[f"{name}, {place} third"] = array
    return idle


def waiting(layer: Any, idle: Collection[str], answer: Callable[[], Any]) -> set[str]:
    """Return which idle matrices a layer uses once another input is handed over, as one of two streams may be."""
    called = getattr(layer, "called_with_more", None)
    return set() if called is None else called({THIRD.sub("", name) for name in idle}, answer)


def diagonals(layer: Layer, answer: Callable[[], Array | None]) -> list[str]:
    """Return the names of square matrices of which an answer depends on the diagonal, and on no other number."""
    found, rng = list[str](), np.random.default_rng(41)
    with restored(layer) as own:
        before = answer()
        if before is None:
            return found
        for name, array in own.items():
            sizes = [n for n in array.shape if n > 1]
            if len(sizes) != len("mm") or sizes[0] != sizes[1]:
                continue
            change = rng.standard_normal((sizes[0], sizes[0]))
            diagonal = np.eye(sizes[0], dtype=np.bool_)
            moved = list[bool]()
            for numbers in (np.where(diagonal, 0.0, change), np.where(diagonal, change, 0.0)):
                layer.put({name: array + numbers.reshape(array.shape)})
                after = answer()
                moved.append(after is None or not np.array_equal(before, after, equal_nan=True))
                if moved[0]:
                    break
            layer.put({name: array})
            found += [name] if moved == [False, True] else []
    return found


def said_of_diagonals(names: Sequence[str]) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of matrices of which only the diagonal is used."""
    for name in names:
        yield Finding(WHOLE, BROKEN, f"of {name} only the diagonal changes anything"), DIAGONAL


WHOLE = "every number of a matrix is used"
DIAGONAL = "projection_diagonal"


def never_called(layer: Any) -> list[str]:
    """Return the names of the layers inside one that it made and never called, where they have no numbers then."""
    return list(getattr(layer, "never_called", ()))


def parts_of_packed(name: str, array: Array) -> Iterator[tuple[str, Array]]:
    """Yield the thirds of a matrix that makes q, k and v, by its name and sizes: one after the other, or by head."""
    axis = packed_axis(name, array)
    if axis is None:
        return
    places, count = np.indices(array.shape)[axis], array.shape[axis] // 3
    for size in (size for size in range(count, 0, -1) if count % size == 0):
        for third, place in enumerate(("first", "second", "last")):
            yield place, places // size % 3 == third


def packed_axis(name: str, array: Array) -> int | None:
    """Return along which axis of a matrix q, k and v lie, which is three times as long as the other; else None."""
    parts = [part for part in re.split(r"[./]", name) if part not in ("weight", "kernel")]
    long = [axis for axis, length in enumerate(array.shape) if length > 1]  # a convolution of single points has others
    if len(long) != len("mm") or not parts or parts[-1] not in FUSED:
        return None
    return next((one for one, other in (long, long[::-1]) if array.shape[one] == 3 * array.shape[other]), None)


def matrices_of(own: Mapping[str, Array]) -> list[str]:
    """Return the names of a layer's parameters that are matrices."""
    return [name for name, array in own.items() if sum(n > 1 for n in array.shape) > 1]


def are_projections(idle: Collection[str], every: Collection[str]) -> bool:
    """Say whether idle matrices are, by their names, those of q, k and v, and none of the others is one of these."""

    def sides(names: Collection[str]) -> set[str]:
        packed = any(part in FUSED for name in names for part in re.split(r"[./]", name))
        return {side for name in names if (side := sounds_like(name)) in SIDES} | (SIDES if packed else set())

    return sides(idle) == SIDES and not sides([name for name in every if name not in idle])


def is_of_any(name: str) -> bool:
    """Say whether a name speaks of any layer, as `linear.weight` and `linears.3` do."""
    words = [part.rstrip("s") for part in re.split(r"[\W_\d]+", name.lower()) if part]
    return all(word in FILLERS for word in words)


def output_of(idle: Collection[str]) -> str:
    """Return the names of those among idle matrices that are, by their names, those of the output."""
    return ", ".join(name for name in idle if sounds_like(name) == "o")


def may_be_output(idle: Collection[str], every: Collection[str]) -> bool:
    """Say whether a matrix among idle ones is that of the output by its name, and no other matrix is."""
    said = {name for name in idle if sounds_like(name) == "o"}
    return bool(said) and {name for name in every if sounds_like(name) == "o"} == said


SIDES = {"q", "k", "v"}
THIRD = re.compile(r", \w+ third$")
NO_OUTPUT = "no_output_projection"
THROUGH = "output_through_another"
UNUSED = "projections_unused"


def idle_biases(layer: Layer, answer: Callable[[], Array]) -> list[str]:
    """Return the sides whose bias changes nothing, by their names; that of keys never does."""
    sides, rng = set[str](), np.random.default_rng(37)
    with restored(layer) as own:
        before = answer()
        for name, array in own.items():
            if sum(n > 1 for n in array.shape) == 1 and "bias" in name.lower() and sounds_like(name) in ("q", "v"):
                layer.put({name: array + rng.standard_normal(array.shape)})
                if np.array_equal(before, answer(), equal_nan=True):
                    sides.add(sounds_like(name))
                layer.put({name: array})
    return sorted(sides)


def said_of_idle(
    idle: Sequence[str], is_alike: Callable[[str, str], bool], *, are_raw: bool, is_output: bool, through: bool
) -> Iterator[tuple[Finding, str]]:  # fmt: skip
    """Yield what is to be said of idle matrices, as `made_of_another` names those of a side.

    `are_raw`: they are projections, of inputs that are multiplied as they are; `is_output`: one is that of the output;
    `through`: the answer goes through the matrix of a side.
    """
    instead = list(made_of_another(idle, is_alike))
    yield from ((Finding(RUNG, BROKEN, why), name) for why, name in instead)
    if instead and is_output and (output := output_of(idle)):
        yield Finding(RUNG, BROKEN, f"{output} changes nothing: it is made and never used"), NO_OUTPUT
    if not instead:
        name = THROUGH if through else UNUSED if are_raw else NO_OUTPUT if is_output else ""
        said = f"{', '.join(idle)} changes nothing: it is made and never used"
        said += ", and the answer goes through the matrix of queries, keys or values" if through else ""
        yield Finding(RUNG, BROKEN if name else REMARK, said), name


def made_of_another(idle: Sequence[str], is_alike: Callable[[str, str], bool]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with each side whose matrix is idle, by its name, and the name of the mistake.

    `is_alike` says whether two sides are made with the same matrix. Where all three are, it is that which is used. A
    name that speaks of any layer, as `linears.2` does, is that of the side that is made with another's.
    """
    sides = {sounds_like(name): name for name in reversed(idle)}
    unsaid = [name for name in idle if is_of_any(name) or THIRD.search(name)]
    if unsaid:
        is_said = bool(set(sides) & set("qkv"))
        for side, other in INSTEAD:
            if not is_said and other not in sides and is_alike(side, other):
                sides[side] = unsaid[0]
    for side, name in sides.items():
        for other in "qkv":
            if other not in sides and (side, other) in INSTEAD and is_alike(side, other):
                yield f"{name} changes nothing: {side} is made with the matrix of {other}", INSTEAD[side, other]
                break
