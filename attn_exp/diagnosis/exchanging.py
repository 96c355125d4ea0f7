"""Modules whose projections are more than a matrix each: a network, a convolution of neighbours, a norm of weights.

What such a child hands on is exchanged for `x W`, with a matrix that it has not: what is left is the attention, and
that can be read. Which children these are is found by what they are given, and by whether tokens meet in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.layers import TorchLayer
from attn_exp.diagnosis.pure_layers import PureLayer
from attn_exp.diagnosis.roles import restored
from attn_exp.diagnosis.ways_into_layers import HERE, Way

HOME = "torch.nn.modules."
ATTENTION = ("MultiheadAttention", "Transformer", "Softmax")
"""In the names of PyTorch's own layers in which tokens meet as they do in attention."""


@dataclass
class Child:
    """One call of a module inside: its path, what it was given first and what it returned.

    `nearby` says that no token, or only its neighbours, change what it returns for another; `before` is the child whose
    answer it was given. `width` counts the numbers of a token that the first of its line is given.
    """

    path: str
    module: Any
    given: Any
    said: Any
    nearby: bool = False
    before: Child | None = None
    width: int = 0

    @property
    def holder(self) -> str:
        """The path of the nearest child in its line that holds numbers, or its own."""
        return next((one.path for one in self.line() if next(one.module.parameters(), None) is not None), self.path)

    def line(self) -> Iterator[Child]:
        """Yield it and those before it, back to the one that is given x."""
        one: Child | None = self
        while one is not None:
            yield one
            one = one.before


@contextmanager
def exchanged(layer: TorchLayer, way: Way) -> Iterator[list[str]]:
    """Exchange projections that are more than a matrix for one each, and yield their names; none may be left.

    The layer stays so where nobody raises an error meanwhile.
    """
    places, hooks = dict(layer.places), list[Any]()
    try:
        names = list[str]()
        for child in projections(layer, way):
            made = exchange(layer, child, way)
            if made:
                hooks += made
                names.append(child.holder)
        if names:
            forget_the_idle(layer, way)
        yield names
    except Exception:
        for hook in hooks:
            hook.remove()
        layer.places = places
        raise


def projections(layer: TorchLayer, way: Way) -> list[Child]:
    """Return the children that make something of x alone which attention is given, but for plain matrices."""
    x, memory = np.random.default_rng(43).standard_normal((2, 1, way.tokens or HERE, way.width))
    calls = children(layer, way, x, memory)
    for at in (0, -1):
        changed = [array.copy() for array in (x, memory)]
        for array in changed:
            array[:, at] += 1.0
        again = children(layer, way, *changed)
        if len(again) != len(calls):
            return []
        for one, other in zip(calls, again, strict=True):
            one.nearby = (one.nearby or at == 0) and (of_own(one.module) or apart(one.said, other.said, x.shape[1]))
    sources, found = [values(x), values(memory)], list[Child]()
    for one in calls:
        given = values(one.given)
        one.before = next((other for other in reversed(found) if np.isin(given, values(other.said)).all()), None)
        if one.nearby and (one.before is not None or any(np.isin(given, source).all() for source in sources)):
            if is_linear(one.module) and is_mixed(one, x, memory):
                return []
            found.append(replace(one, width=way.width))
    paths = {one.path for one in found}
    outer = [one for one in found if not any(one.path.startswith(f"{path}.") for path in paths)]
    taken = {id(one.before) for one in outer}
    last = {(one.path, one.holder): one for one in outer if id(one) not in taken}  # pools may serve two projections
    behind = {one.path: replace(one, before=None, width=one.given.shape[axis_of_features(one.module)])
              for one in calls if one.path not in paths and is_weighed_otherwise(one.module)}  # fmt: skip
    made = [one for one in last.values() if not is_plain(one) and any(holds_matrix(each.module) for each in one.line())]
    return [*made, *behind.values()]


def is_more_than_matrices(layer: TorchLayer, way: Way) -> bool:
    """Say whether projections cannot be matrices: tokens meet their neighbours, or answers go in no line with x."""
    inside = [one for one in layer.module.modules() if type(one).__module__ == f"{HOME}conv"]
    if any(size != 1 for one in inside for size in one.kernel_size):
        return True
    x, memory = np.random.default_rng(61).standard_normal((2, 1, way.tokens or HERE, way.width))
    try:
        with layer.without_norms():
            paths = {one.path for one in projections(layer, way)}
            every = [children(layer, way, x * factor, memory * factor) for factor in (0.0, 1.0, 2.0)] if paths else []
    except (RuntimeError, ValueError, TypeError):
        return False
    return any(
        one.path in paths and one.said.shape == other.said.shape == third.said.shape
        and bool(((one.said + third.said) / 2 - other.said).abs().max() > 1e-4 * other.said.abs().max())
        for one, other, third in zip(*every, strict=False)
    )  # fmt: skip


def at_rest(module: Any) -> dict[str, Array]:
    """Return the parameters of convolutions of each number by itself as those that hand on what they are given."""
    found: dict[str, Array] = {}
    for path, one in module.named_modules():
        kernel = getattr(one, "kernel_size", ())
        alike = getattr(one, "groups", 1) == getattr(one, "in_channels", 0) == getattr(one, "out_channels", 0)
        if type(one).__module__ != f"{HOME}conv" or not alike or not all(size % 2 and size > 1 for size in kernel):
            continue
        if any(step != 1 for step in one.stride):
            continue
        weight = np.zeros(tuple(one.weight.shape))
        weight[(slice(None), 0, *(size // 2 for size in kernel))] = 1.0
        found[f"{path}.weight"] = weight
        if one.bias is not None:
            found[f"{path}.bias"] = np.zeros(tuple(one.bias.shape))
    return found


def heads_apart(layer: TorchLayer | PureLayer, heads: int) -> dict[str, Array]:
    """Return the matrices that mix heads with each other, and their biases, as those that leave each as it is.

    Such a matrix has as many rows and columns as there are heads, whatever other axes of length 1 it has.
    """
    own, found = layer.parameters, dict[str, Array]()
    for name, array in own.items():
        if [length for length in array.shape if length > 1] == [heads, heads]:
            bias = re.sub("(weight|kernel)$", "bias", name)
            found[name] = np.eye(heads).reshape(array.shape)
            found |= {bias: np.zeros(heads)} if bias != name and bias in own else {}
    return found


def axis_of_features(module: Any) -> int:
    """Return the axis of what a matrix or a convolution is given along which the numbers of a token lie."""
    return 1 if hasattr(module, "kernel_size") else -1


def children(layer: TorchLayer, way: Way, x: Array, memory: Array) -> list[Child]:
    """Return the calls of modules inside a layer, in the order in which they end; those within another come first."""
    calls = list[Child]()

    def note(path: str) -> Any:
        def noted(module: Any, given: Any, said: Any) -> None:
            if given and all(hasattr(one, "movedim") for one in (given[0], said)):
                calls.append(Child(path, module, given[0].detach().clone(), said.detach().clone()))

        return noted

    inside = [(path, module) for path, module in layer.module.named_modules() if path]
    hooks = [module.register_forward_hook(note(path)) for path, module in inside if hasattr(module, "forward")]
    try:
        layer.answer(way, x, memory if way.memory else None)
    finally:
        for hook in hooks:
            hook.remove()
    return sorted(calls, key=lambda one: one.path.count("."))  # what holds others first: it stands for them


def apart(one: Any, other: Any, tokens: int) -> bool:
    """Say whether an answer is the same but for one token."""
    if one.shape != other.shape:
        return False
    return bool((one != other).double().mean() <= 1.0 / tokens + 1e-9)


def of_own(module: Any) -> bool:
    """Say whether a module is made of PyTorch's own layers alone, and of none that attends."""
    kinds = [type(one) for one in module.modules()]
    return all(kind.__module__.startswith(HOME) and not any(word in kind.__name__ for word in ATTENTION)
               for kind in kinds)  # fmt: skip


def values(array: Any) -> Array:
    """Return the numbers of an array, sorted, with 0, which padding is."""
    return np.append(np.unique(np.asarray(array).ravel()), 0.0)


def is_linear(module: Any) -> bool:
    """Say whether a module multiplies the last axis of what it is given, row by row."""
    return type(module).__name__ == "Linear" and type(module).__module__.startswith(HOME)


def is_mixed(child: Child, x: Array, memory: Array) -> bool:
    """Say whether a matrix is given rows of several tokens, or parts of some as if these were tokens of their own.

    Rows that hold other numbers than those of x, such as padding, tell nothing.
    """
    given = np.asarray(child.given)
    rows = given.reshape(-1, given.shape[-1])
    handed = [np.asarray(one.said) for one in child.line() if one is not child]
    for source in (*(one for one in handed if one.ndim == x.ndim), x, memory):
        numbers = source.ravel()
        order = np.argsort(numbers)
        found = order[np.searchsorted(numbers, rows, sorter=order).clip(max=numbers.size - 1)]
        if not np.array_equal(numbers[found], rows):
            continue
        tokens, features = np.divmod(found, source.shape[-1])
        counts = np.unique(tokens[:, 0], return_counts=True)[1]
        parts = len(np.unique(features, axis=0)) > 1 and len(counts) < source.shape[1]
        return bool((tokens != tokens[:, :1]).any() or len(set(counts)) > 1 or parts)
    return False


def is_plain(child: Child) -> bool:
    """Say whether a child is a matrix, and given x as it is: nothing has to be exchanged then."""
    alone = child.before is None or is_norm_alone(child.before)
    return alone and is_matrix(child.module)


def is_matrix(module: Any) -> bool:
    """Say whether a module is one of PyTorch's that multiplies by the matrix that it holds."""
    own = type(module).__module__.startswith(HOME) and not module._forward_pre_hooks
    return own and is_matrix_by_kind(module, type(module).__name__)


def is_matrix_by_kind(module: Any, kind: str) -> bool:
    """Say whether a kind of module multiplies by a matrix: a linear layer, or a convolution of single points."""
    ones = all(size == 1 for size in getattr(module, "kernel_size", ()))
    return kind == "Linear" or (kind in ("Conv1d", "Conv2d", "Conv3d") and ones and module.groups == 1)


def is_norm_alone(child: Child) -> bool:
    """Say whether a child is a norm of x, or a dropout."""
    return child.before is None and child.given.shape == child.said.shape and not holds_matrix(child.module)


def holds_matrix(module: Any) -> bool:
    """Say whether there is a matrix in a module."""
    return any(sum(length > 1 for length in tensor.shape) > 1 for tensor in module.parameters())


def is_weighed_otherwise(module: Any) -> bool:
    """Say whether a module is a matrix that it makes of another one in each call, as a norm of matrices does."""
    kinds = [base for base in type(module).__mro__ if base.__module__.startswith(HOME)]
    plain = any(is_matrix_by_kind(module, base.__name__) for base in kinds)
    return plain and not is_matrix(module)


def exchange(layer: TorchLayer, child: Child, way: Way) -> list[Any]:
    """Let a child return `x W`, and return the hooks that do it; none where its answer has other tokens than x."""
    line = list(child.line())
    first = next(one for one in reversed(line) if one is child or not is_norm_alone(one))
    axes = [axis for axis, length in enumerate(first.given.shape) if length == child.width]
    of_x = axis_of(first.given, axes, 1)
    if of_x is None:
        return []
    rows = first.given.numel() // child.width
    steps = (1, 2) if "H" in way.axes and first.given.ndim == len("bmhw") else (1,)
    outs = {step: axis_of(child.said, sized(child.said, rows / step**2), of_x) for step in steps}
    step, out = next(((step, out) for step, out in outs.items() if out is not None), (0, 0))
    if not step:
        return []
    width = child.said.shape[out]
    matrix = first.given.new_tensor(np.random.default_rng(47).standard_normal((child.width, width)) / child.width**0.5)
    layer.places[f"{child.holder}.weight"] = matrix
    seen = dict[int, Any]()

    def note(module: Any, given: Sequence[Any]) -> None:
        seen[get_ident()] = given[0]

    def answer(module: Any, given: Any, said: Any) -> Any:
        if get_ident() not in seen:  # it serves another line now
            return None
        rows_of_x = seen.pop(get_ident()).movedim(of_x, -1)
        rows_of_x = rows_of_x[:, ::step, ::step] if step > 1 else rows_of_x
        sizes = [length for axis, length in enumerate(said.shape) if axis != out % said.ndim]
        return (rows_of_x @ matrix).reshape(*sizes, width).movedim(-1, out)

    return [first.module.register_forward_pre_hook(note), child.module.register_forward_hook(answer, prepend=True)]


def sized(array: Any, rows: float) -> list[int]:
    """Return the axes of an array along which so many vectors lie."""
    return [axis for axis, length in enumerate(array.shape) if array.numel() == rows * length]


def axis_of(array: Any, axes: Sequence[int], likely: int) -> int | None:
    """Return the axis of features among those that may be it: of images and rows of columns the likely one."""
    if not axes:
        return None
    if array.ndim > 3 and likely in axes:
        return likely
    return axes[-1] if array.ndim - 1 in axes else axes[0]


def forget_the_idle(layer: TorchLayer, way: Way) -> None:
    """Leave out the parameters that change nothing any more."""
    x, memory = np.random.default_rng(53).standard_normal((2, 1, way.tokens or HERE, way.width))
    given = x, memory if way.memory else None
    plain, rng, idle = layer.answer(way, *given), np.random.default_rng(59), list[str]()
    with restored(layer) as before:
        for name, array in before.items():
            layer.put({name: array + rng.standard_normal(array.shape)})
            if np.array_equal(plain, layer.answer(way, *given)):
                idle.append(name)
            layer.put({name: array})
    for name in idle:
        del layer.places[name]
