"""Norms around attention that nobody sees at work, as functions of NumPy have them: fitted to answers to one token.

Of one token attention is a matrix, `x W + b`. So what a norm before it makes of x is a line for each number of x, and
one after it a line for each number of the answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms.around import Around, Norm, normed

KINDS = ("LayerNorm", "RMSNorm", "L2")
EPSILONS = (1e-5, 1e-6, 0.0, 1e-8, 1e-12, 1e-3, 1e-9, 1e-10, 1e-7)
PER_NUMBER, EXACT = 3, 1e-11
"""Tokens that are asked for each number of x, and how near an answer is that no other norm can be nearer to."""


def around_of_answers(ask: Callable[[Array], Array], of_one: Callable[[Array], Array], width: int, rounding: float) -> (
    Around | None
):  # fmt: skip
    """Return the norms and the residual with which attention gives the answers to single tokens; None if none does.

    `ask` returns the answers `[n 1 m]` to tokens, and `of_one` what attention alone makes of them.
    """
    x = np.random.default_rng(31).standard_normal((PER_NUMBER * width, 1, width))
    answer = ask(x)
    bias = of_one(np.zeros((1, 1, width)))[0, 0]
    matrix = of_one(np.eye(width)[:, None])[:, 0] - bias
    if answer.shape[-1] != len(bias):
        return None
    largest, best, nearest = np.abs(answer).max(), None, rounding
    for around in tried(x, answer, matrix, bias):
        gap = np.abs(around.finish(x, of_one(around.x(x))) - answer).max() / largest
        if gap < nearest:
            best, nearest = around, gap
        if nearest < EXACT:
            break
    return best


def tried(x: Array, answer: Array, matrix: Array, bias: Array) -> Iterator[Around]:
    """Yield what may surround attention, fitted to its answers: of each kind of norm, one before it or one after."""
    residuals = (True, False) if answer.shape == x.shape else (False,)
    for residual, kind, eps in itertools.product(residuals, KINDS, EPSILONS):
        yield Around(before=norm_before(kind, eps, x, answer - residual * x - bias, matrix), residual=residual)
        inner = residual * x + x @ matrix + bias
        plain = normed(kind, inner, eps)
        gain, shift = lines(plain[:, 0], answer[:, 0])
        yield Around(last=Norm(kind, gain, shift, eps), residual=residual)


def norm_before(kind: str, eps: float, x: Array, made: Array, matrix: Array) -> Norm:
    """Return the norm of x after which a matrix makes `made`, as nearly as one can: its gain, and its shift."""
    plain = normed(kind, x, eps)[:, 0]
    apart, target = plain - plain.mean(axis=0), made[:, 0] - made[:, 0].mean(axis=0)
    # sum over i of gain[i] apart[n i] matrix[i j] = target[n j]: normal equations in the gain
    left = (apart.T @ apart) * (matrix @ matrix.T)
    right = np.einsum("ni,ij,nj->i", apart, matrix, target)
    gain, *_ = np.linalg.lstsq(left, right, rcond=None)
    rest = (made[:, 0] - (plain * gain) @ matrix).mean(axis=0)
    shift, *_ = np.linalg.lstsq(matrix.T, rest, rcond=None)
    near = np.abs(shift) < 1e-9
    return Norm(kind, gain, np.where(near, 0.0, shift), eps)


def lines(x: Array, y: Array) -> tuple[Array, Array]:
    """Return slope and start of the lines `y = a x + b`, one for each column."""
    apart = x - x.mean(axis=0)
    slope = (apart * (y - y.mean(axis=0))).sum(axis=0) / np.maximum((apart**2).sum(axis=0), 1e-300)
    return slope, y.mean(axis=0) - slope * x.mean(axis=0)
