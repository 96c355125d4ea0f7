"""Subscripts of `np.einsum` for products that are written in other ways."""

from __future__ import annotations

import string
from collections.abc import Sequence

Subscripts = tuple[str, str, str]


def resolve_subscripts(subscripts: str, ndims: Sequence[int]) -> Subscripts:
    """Replace `...` by letters in the subscripts of two arrays with these numbers of axes; add an implicit output."""
    operands, arrow, output = subscripts.replace(" ", "").partition("->")
    if not arrow:
        output = "..." + "".join(one for one in sorted(set(operands) - set(",.")) if operands.count(one) == 1)
    terms = operands.split(",")
    counts = [ndim - len(term) + 3 if "..." in term else 0 for term, ndim in zip(terms, ndims, strict=True)]
    unused = [one for one in string.ascii_letters if one not in subscripts]
    dots = "".join(unused[: max(counts)])
    left, right, output = (
        term.replace("...", dots[len(dots) - length :])
        for term, length in zip((*terms, output), (*counts, len(dots)), strict=True)
    )
    return left, right, output


def contract_axes(
    ndims: Sequence[int], summed: Sequence[Sequence[int]], batch: Sequence[Sequence[int]] = ((), ())
) -> Subscripts:
    """Return subscripts of the sum over pairs of axes: the output has the batch axes, then the others of each array."""
    letters = iter(string.ascii_letters)
    left, right = ([next(letters) for _ in range(ndim)] for ndim in ndims)
    for axis, other in zip((*summed[0], *batch[0]), (*summed[1], *batch[1]), strict=True):
        right[other] = left[axis]
    free = [one for one in left if one not in right] + [one for one in right if one not in left]
    return "".join(left), "".join(right), "".join([*(left[axis] for axis in batch[0]), *free])
