"""Finds what stands around attention inside a layer whose roles are known: norms, residuals, a factor.

Of one token alone attention is `(x W_v + b_v) W_o + b_o`, whatever its mask, scale and positions are; so what the layer
answers beside that says what surrounds it. What a norm does is fitted to what goes in and comes out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.calling.way import APART, LAID, Way, turned
from attn_exp.forms.around import Around, Norm, normed
from attn_exp.forms.steps import join_heads, repeat_heads, split

CLOSE = 1e-5
EXACT, IN_SINGLE = 1e-9, 3e-6
"""How near a norm is to what it is taken for, in float64 and in float32."""
TOKENS, ENTRIES = 6, 2
EPSILONS = (1e-5, 1e-6, 0.0, 1e-8, 1e-12, 1e-3, 1e-4, 1e-10, 1e-9, 1e-7)
OF_ONE = ("mhw", "hwm", "mt")
"""Orders of the axes of one entry."""
GROUPS = (32, 1, 8, 16, 4, 2)

Event = tuple[Any, Array, Array]
"""A norm inside, what it was given, and what it returned."""
Watch = Callable[[Array, "Array | None"], tuple[Array, list[Event]]]
"""Calls a layer with x and a memory, and returns its answer `[b t m]` and what its norms saw."""


@dataclass(frozen=True)
class Inner:
    """The attention inside, of one token alone, whose value is multiplied by `unit`: 1 where weights sum to 1."""

    arrays: Mapping[str, Array]
    heads: int
    groups: int
    unit: float = 1.0

    def of_one(self, x: Array, norm: Norm | None = None) -> Array:
        """Return the answer to one token, `[b 1 m]`, where values may be normed."""
        values = self.side("v", x) if norm is None else norm.of_heads(self.side("v", x))
        merged = self.unit * join_heads(repeat_heads(values, self.heads))
        weight = self.arrays.get("W_o")
        return np.asarray((merged if weight is None else merged @ weight) + self.arrays.get("b_o", 0.0))

    def side(self, side: str, x: Array) -> Array:
        """Return the heads of one side, `[b h t d]`."""
        flat = x @ self.arrays[f"W_{side}"] + self.arrays.get(f"b_{side}", 0.0)
        return split(flat, self.heads if side == "q" else self.groups)


def surroundings(watch: Watch, way: Way, inner: Inner, rounding: float = 1e-5) -> Around | None:
    """Return what stands around attention, or None where nothing known gives the layer's answer to one token."""
    rng = np.random.default_rng(17)
    sizes = [(1, 1, way.width), several(way)]
    one, many = (rng.standard_normal(size) for size in sizes)
    other_one, other_many = (rng.standard_normal(size) if way.memory else None for size in sizes)
    answer, seen = watch(np.repeat(one, way.tokens or 1, axis=1), other_one)
    seen_of_many = watch(many, other_many)[1]
    if way.tokens or set(way.axes) & set(APART):
        seen = [in_tokens(event, way.axes, 1, way.tokens or 1) for event in seen]
        seen_of_many = [in_tokens(event, way.axes, *many.shape[:2]) for event in seen_of_many]
    if way.tokens:  # several that are alike stand for one
        answer, seen = answer[:, -1:], [(norm, given[:, -1:], said[:, -1:]) for norm, given, said in seen]
    found, rest = before_it(seen, seen_of_many, (one, many), (other_one, other_many))
    x, memory = found.x(many), many if other_many is None else other_many
    keys = x if other_many is None else found.memory(memory)
    heads = dict[str, Norm]()
    after = list[tuple[Event, Event]]()
    for of_one, of_many in rest:
        sides = {"q": inner.side("q", x), "k": inner.side("k", keys), "v": inner.side("v", keys)}
        side, norm = norm_of_heads(of_many, sides, taken=heads)
        if norm is None:
            after.append((of_one, of_many))
        else:
            heads[side] = norm
    found = replace(found, heads=heads)
    plain = inner.of_one(found.x(one) if other_one is None else found.memory(other_one), heads.get("v"))
    known = after_it(found, after, (one, many), plain, answer, rounding)
    if known is None and not seen and not way.memory and not way.tokens:
        return around_of_answers(lambda x: watch(x, None)[0], replace(inner, unit=1.0).of_one, way.width, rounding)
    return known


def in_tokens(event: Event, axes: str, batch: int, tokens: int) -> Event:
    """Return what a norm saw as `[b t m]`, where it saw tokens that lie as those of x do, or in one row."""
    norm, given, said = event
    for order in (axes, "bmp"):
        z, out = (arranged(array, order, batch, tokens) for array in (given, said))
        if z is not None and out is not None:
            return norm, z, out
    return event


def several(way: Way) -> tuple[int, int, int]:
    """Return the sizes of an x of several tokens that a layer is asked with; of one text each entry is a call."""
    return ENTRIES if "b" in way.axes else 1, way.tokens or TOKENS, way.width


def before_it(
    seen: Sequence[Event], seen_of_many: Sequence[Event], x: tuple[Array, Array], memory: tuple[Any, Any]
) -> tuple[Around, list[tuple[Event, Event]]]:
    """Return the norms of x and of the memory, and what the other norms saw."""
    found, rest = Around(), list[tuple[Event, Event]]()
    for of_one, of_many in zip(seen, seen_of_many, strict=False):
        _, given, _ = of_one
        if same(given.ravel(), x[0].ravel()):
            found = replace(found, before=found.before or fitted(of_many, x[1]))
        elif memory[0] is not None and same(given.ravel(), memory[0].ravel()):
            found = replace(found, of_memory=found.of_memory or fitted(of_many, memory[1]))
        else:
            rest.append((of_one, of_many))
    return found, rest


def after_it(
    found: Around,
    after: Sequence[tuple[Event, Event]],
    x: tuple[Array, Array],
    plain: Array,
    answer: Array,
    rounding: float,
) -> Around | None:
    """Return the surroundings with what stands after W_o, such that they give the answer to one token."""
    one, many = x
    whole = Around(before=found.before).finish(one, plain)
    for (_, given, _), of_many in after:
        if same(given.ravel(), whole.ravel()):
            found = replace(found, inner=found.inner or fitted(of_many, many, of_other=True))
    for residual, of_normed in ((False, False), (True, False), (True, True)):
        tried = replace(found, residual=residual, of_normed=of_normed)
        sums = tried.finish(one, plain)
        if sums.shape == one.shape and same(sums, answer, rounding):  # what follows is a layer that was left out
            return tried
        tried = with_last_norms(tried, after, x, plain)
        if tried.residual and tried.finish(one, plain).shape != one.shape:
            continue
        said = tried.finish(one, plain)
        if same(said, answer, rounding):
            return tried
        if said.shape == answer.shape and tried.last is None:
            factor = float((said * answer).sum() / max(float((said * said).sum()), 1e-300))
            if factor and same(said * factor, answer, rounding):
                return replace(tried, factor=factor)
    return None


def with_last_norms(
    found: Around, after: Sequence[tuple[Event, Event]], x: tuple[Array, Array], plain: Array
) -> Around:  # fmt: skip
    """Return the surroundings with the norms that are given what attention and the residual come to."""
    one, many = x
    for (_, given, _), of_many in after:
        if not same(given.ravel(), found.finish(one, plain).ravel()):
            continue
        if found.last is None and not same(given.ravel(), plain.ravel()):
            found = replace(found, last=fitted(of_many, many, of_other=True))
        elif found.last is not None and found.then is None:
            found = replace(found, then=fitted(of_many, many, of_other=True))
    return found


def same(one: Array, other: Array, rounding: float = CLOSE) -> bool:
    """Say whether two arrays hold the same numbers, rounding apart."""
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=rounding, atol=rounding))


# What a norm does


def fitted(event: Event, x: Array, of_other: bool = False) -> Norm | None:
    """Return the norm along the last axis of `[b t m]` that gives what one returned; `x` says the sizes."""
    module, given, said = event
    batch, tokens = x.shape[:2]
    for axes in (*LAID, "tbm", "bmp", *OF_ONE) if batch == 1 else (*LAID, "tbm", "bmp"):
        z, out = (arranged(array, axes, batch, tokens) for array in (given, said))
        if z is None or out is None or (not of_other and not same(z, x)):
            continue
        norm = fit(module, z, out, (0, 1))
        if norm is not None:
            return norm
    return None


def arranged(array: Array, axes: str, batch: int, tokens: int) -> Any:
    """Return what a norm saw as `[b t m]`."""
    if axes == "bmp":  # an image whose points lie in one row
        return array.swapaxes(1, 2) if array.ndim == 3 and array.shape[2] == tokens else None
    return turned(array, axes, batch, tokens)


def norm_of_heads(event: Event, heads: Mapping[str, Array], taken: Mapping[str, Norm]) -> tuple[str, Norm | None]:
    """Return which side a norm is given, and the norm, or None where it is given something else."""
    module, given, said = event
    for side, target in heads.items():
        if side in taken:
            continue
        batch, _, tokens, size = target.shape
        wide = target.swapaxes(1, 2).reshape(batch, tokens, -1)
        if same(given.ravel(), wide.ravel()) and given.shape[-1] == wide.shape[-1]:
            norm = fit(module, wide, said.reshape(wide.shape), (0, 1))
            if norm is not None:
                return side, replace(norm, joined=True)
        for turn in ((0, 1, 2, 3), (0, 2, 1, 3), (2, 0, 1, 3), (1, 0, 2, 3)):
            laid = target.transpose(turn)
            if given.size == laid.size and given.shape[-1] == size and same(given.ravel(), laid.ravel()):
                out = said.reshape(laid.shape).transpose(np.argsort(turn))
                norm = fit(module, target, out, (0, 2))
                return side, norm
    return "", None


def fit(module: Any, z: Array, out: Array, over: tuple[int, ...]) -> Norm | None:
    """Return the norm that makes `out` of `z`; its gain and shift are the same along the axes `over`.

    Many norm in float32, whatever they are given.
    """
    told = small_numbers(module)
    largest, nearest, best = max(np.abs(out).max(initial=0.0), 1.0), np.inf, None
    for kind, eps, groups in kinds(module, z.shape[-1], z.ndim):
        plain = normed(kind, z, eps, groups)
        gain, shift = line_through(plain, out, over)
        shift = np.where(np.abs(shift) < IN_SINGLE * largest, 0.0, shift)
        gap = np.abs(plain * gain + shift - out).max(initial=0.0) / largest
        if gap < nearest:
            nearest, best = gap, Norm(kind, gain[0], shift[0], eps, groups)
        if nearest < (IN_SINGLE if eps in told else EXACT):  # numbers of float32 do not tell small ones apart
            break
    return best if nearest < IN_SINGLE else None


def line_through(x: Array, y: Array, over: tuple[int, ...]) -> tuple[Array, Array]:
    """Return slope and start of the lines `y = a x + b`, one for each place along the other axes."""
    mean_x, mean_y = x.mean(axis=over, keepdims=True), y.mean(axis=over, keepdims=True)
    spread = ((x - mean_x) ** 2).sum(axis=over, keepdims=True)
    slope = ((x - mean_x) * (y - mean_y)).sum(axis=over, keepdims=True) / np.maximum(spread, 1e-300)
    slope = np.where(np.abs(slope) < 1e-12, 0.0, slope)
    return slope, mean_y - slope * mean_x


def small_numbers(module: Any) -> list[float]:
    """Return what a norm says that its small number is: PyTorch takes the least of float64 where it says None."""
    told = [float(np.finfo(np.float64).eps) if value is None else value
            for word, value in vars(module).items() if "eps" in word]  # fmt: skip
    return [float(value) for value in told if isinstance(value, int | float)]


def kinds(module: Any, width: int, axes: int) -> Iterator[tuple[str, float, int]]:
    """Yield kinds of norms with their small number, what the module says first."""
    told = small_numbers(module)
    groups = [value for word, value in vars(module).items() if "group" in word and isinstance(value, int)]
    small = tuple(dict.fromkeys((*told, *EPSILONS)))
    yield from itertools.product(("LayerNorm", "RMSNorm", "L2"), small, (1,))
    if axes == 3:
        parts = [count for count in dict.fromkeys((*groups, *GROUPS, width)) if width % count == 0]
        yield from itertools.product(("GroupNorm",), small, parts)
    yield "affine", 0.0, 1


# Norms that nobody sees at work, as functions of NumPy have them: of one token attention is a matrix, `x W + b`, so
# what a norm before it makes of x is a line for each number of x, and one after it a line for each of the answer

KINDS = ("LayerNorm", "RMSNorm", "L2")
PER_NUMBER, NEAREST = 3, 1e-11
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
        if nearest < NEAREST:
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
