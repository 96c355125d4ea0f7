"""What happens inside a call of NumPy: its operations as `watching` has those of PyTorch, done in float64.

An array that is watched asks to do whatever NumPy is to do with it. What only moves numbers is no operation here, and
what it returns is made by what made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.code.jaxprs import as_matrices
from attn_exp.diagnosis.code.watching import Operation

NAMES = {"subtract": "sub", "multiply": "mul", "divide": "div", "negative": "neg", "add_reduce": "sum",
         "maximum_reduce": "amax", "add_accumulate": "cumsum", "convolve": "roll", "rfft": "_fft_r2c",
         "fft": "_fft_r2c"}  # fmt: skip
"""What PyTorch calls operations of NumPy."""
VIEWS = ("transpose", "permute_dims", "matrix_transpose", "reshape", "ravel", "swapaxes", "moveaxis", "rollaxis",
         "squeeze", "expand_dims", "split", "array_split", "hsplit", "vsplit", "dsplit", "unstack", "broadcast_to",
         "atleast_1d", "atleast_2d", "atleast_3d", "copy", "flip", "fliplr", "flipud", "take", "diagonal", "shape",
         "ndim", "size", "multi_dot")  # fmt: skip
"""Functions of NumPy that move numbers alone, or do it in others that are seen by themselves."""
WRITERS = ("copyto", "putmask", "place", "put", "put_along_axis", "fill_diagonal")
"""Functions that write into the first array that they are given."""
FRESH = ("zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "full_like")
OF_ANY = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")


@dataclass
class Memory:
    """What is known of the numbers that some arrays share: the place of the operation that made them, and whether that
    was made of x."""

    notes: Notes
    made: int | None = None
    of_x: bool = False


class Watched(np.ndarray[Any, Any]):
    """An array whose operations are noted."""

    memory: Memory | None = None

    def __array_finalize__(self, parent: Any) -> None:
        memory = getattr(parent, "memory", None)
        if memory is not None:
            self.memory = memory if np.may_share_memory(self, parent) else replace(memory)

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **named: Any) -> Any:
        notes = notes_of(given, named)
        if notes is None:
            return getattr(ufunc, method)(*plain(given), **plain(named))
        if ufunc is np.matmul and method == "__call__":
            return notes.into(named, given, notes.matmul)
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}_{method}"
        if method == "at":
            return notes.written(given, lambda: ufunc.at(*plain(given), **plain(named)))
        return notes.into(named, given, lambda *_: notes.done(name, given, getattr(ufunc, method), named))

    def __array_function__(self, function: Any, types: Any, given: Any, named: Any) -> Any:
        name, notes = function.__name__, notes_of(given, named)
        if notes is None:
            return function(*plain(given), **plain(named))
        if name in VIEWS:
            return super().__array_function__(function, types, given, named)
        if name in WRITERS:
            return notes.written(given, lambda: function(*plain(given), **plain(named)))
        if name in FRESH:
            return watched_as(function(*plain(given), **plain(named)), Memory(notes))
        if name in PRODUCTS and not (set(named) - {"out", "optimize", "axes"}):
            axes = (named["axes"],) if "axes" in named else ()
            return notes.into(named, (*given, *axes), lambda *all_given: PRODUCTS[name](notes, *all_given))
        return notes.into(named, given, lambda *_: notes.done(name, given, function, named))

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.memory is None or not self.memory.notes.is_open:
            plain(self)[plain(key)] = plain(value)
            return
        self.memory.notes.written((self, key, value), lambda: plain(self).__setitem__(plain(key), plain(value)))

    def astype(self, dtype: Any, *others: Any, **named: Any) -> Any:
        """Return it in another type; floats stay as wide as they are."""
        is_float = np.dtype(dtype).kind == "f"
        return self.copy() if is_float else super().astype(dtype, *others, **named)

    def dot(self, other: Any, out: Any = None) -> Any:
        """Return a product, as the function does."""
        return np.dot(self, other) if out is None else np.dot(self, other, out=out)


def plain(value: Any) -> Any:
    """Return what is watched as arrays that are not, also what lies in lists, tuples and dictionaries."""
    if isinstance(value, Watched):
        return value.view(np.ndarray)
    if isinstance(value, tuple | list):
        return type(value)(map(plain, value)) if type(value) in (tuple, list) else value
    return {key: plain(one) for key, one in value.items()} if type(value) is dict else value


def watched_in(value: Any) -> Iterator[Watched]:
    """Yield the arrays that are watched, also those in lists, tuples and dictionaries."""
    if isinstance(value, Watched):
        yield value
    elif isinstance(value, tuple | list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from watched_in(one)


def notes_of(*given: Any) -> Notes | None:
    """Return where the operations of what is watched are noted, if they still are."""
    memories = (one.memory for one in watched_in(given) if one.memory is not None)
    return next((memory.notes for memory in memories if memory.notes.is_open), None)


def watched_as(said: Any, memory: Memory) -> Any:
    """Return an array as one that is watched, in float64; anything else as it is."""
    if isinstance(said, tuple | list):
        return type(said)(watched_as(one, memory) for one in said) if type(said) in (tuple, list) else said
    if not isinstance(said, np.ndarray) or said.dtype.kind not in "fbiu":
        return said
    array = (said.astype(np.float64) if said.dtype.kind == "f" else said).view(Watched)
    array.memory = memory
    return array


@dataclass
class Notes:
    """What is noted of the operations of calls; `instead` changes what a product returns, by its place."""

    instead: Mapping[int, Callable[[Any], Any]]
    operations: list[Operation] = field(default_factory=list)
    is_open: bool = True

    def of_x(self, value: Any) -> Any:
        """Return arrays as those that x is, also in lists and tuples."""
        if isinstance(value, tuple | list):
            return type(value)(self.of_x(one) for one in value) if type(value) in (tuple, list) else value
        is_array = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        return watched_as(np.array(value), Memory(self, None, of_x=True)) if is_array else value

    def note(self, name: str, given: Sequence[Any], arrays: Sequence[Any], said: Any) -> Memory:
        """Note an operation, with `arrays` for what it was given; return what is known of what it returns."""
        memories = [getattr(one, "memory", None) or Memory(self) for one in given]
        made, of_x = tuple(one.made for one in memories), tuple(one.of_x for one in memories)
        copies = tuple(np.array(one) for one in arrays)
        self.operations.append(Operation(NAMES.get(name, name), copies, made, of_x, (), np.array(said)))
        return Memory(self, len(self.operations) - 1, any(of_x))

    def done(self, name: str, given: Sequence[Any], function: Callable[..., Any], named: Mapping[str, Any]) -> Any:
        """Return what a function says, and note it as one operation of all arrays and numbers that it is given."""
        named = {word: value for word, value in named.items() if word != "out"}
        arrays = list(leaves((*given, *named.values())))
        before = [np.array(plain(one)) for one in arrays]
        said = function(*plain(given), **plain(named))
        first: Any = said[0] if isinstance(said, tuple | list) and said else said
        if not isinstance(first, np.ndarray | np.generic):
            return said
        if name == "apply_along_axis" and is_softmax(before[-1], np.asarray(first)):
            name, before = "_softmax", before[-1:]
        return watched_as(said, self.note(name, arrays, before, first))

    def into(self, named: Mapping[str, Any], given: Sequence[Any], make: Callable[..., Any]) -> Any:
        """Return what is made of what is given, written into `out` where a call says so."""
        said = make(*given)
        out = named.get("out")
        out = out[0] if isinstance(out, tuple) else out
        if out is None:
            return said
        plain(out)[...] = plain(said)
        if isinstance(out, Watched) and isinstance(said, Watched):
            assert out.memory is not None and said.memory is not None
            out.memory.made, out.memory.of_x = said.memory.made, said.memory.of_x
        return out

    def written(self, given: Sequence[Any], write: Callable[[], None]) -> None:
        """Write into the first array that is given, and note it as made of what it was and of what is written."""
        arrays = list(leaves(given))
        before = [np.array(plain(one)) for one in arrays]
        write()
        into = given[0]
        if isinstance(into, Watched) and into.memory is not None:
            memory = self.note("index_put", arrays, before, plain(into))
            into.memory.made, into.memory.of_x = memory.made, memory.of_x

    # Products

    def product(self, left: Any, right: Any, numbers: Any, name: str) -> Any:
        """Return a product along some axes, done as one of `[n t d]` and `[n d s]`, and note it.

        That of two arrays made of x with several axes of rows or columns is no such product, and noted by its `name`.
        """
        given, made = (left, right), list[Memory]()

        def multiplied(first: Array, second: Array) -> Any:
            at = len(self.operations)
            said = self.instead.get(at, lambda one: one)(first @ second)
            is_plain = not all(is_of_x(one) for one in given) or has_one_row(given, numbers)
            made.append(self.note("bmm" if is_plain else name, given, (first, second), said))
            return said

        first, second = (np.asarray(plain(one), np.float64) for one in given)
        said = as_matrices(first, second, numbers, multiplied)
        return watched_as(np.asarray(said), made[0]) if np.ndim(said) else said[()]

    def matmul(self, left: Any, right: Any) -> Any:
        """Return `left @ right`."""
        axes = np.ndim(left), np.ndim(right)
        if 1 in axes:
            return (
                self.dot(left, right) if max(axes) <= 2 or axes[1] == 1 else self.einsum("a,...ab->...b", left, right)
            )
        if axes[1] == 2 and (axes[0] == 2 or not is_of_x(right)):
            return self.dot(left, right)
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        left, right = (np.broadcast_to(one, (*batch, *one.shape[-2:])) for one in (left, right))
        several = tuple(range(len(batch)))
        return self.product(left, right, (((left.ndim - 1,), (left.ndim - 2,)), (several, several)), "matmul")

    def dot(self, left: Any, right: Any) -> Any:
        """Return the sum over the last axis of one and the last but one of the other."""
        if not (np.ndim(left) and np.ndim(right)):
            return np.multiply(left, right)
        return self.tensordot(left, right, ((np.ndim(left) - 1,), (max(np.ndim(right) - 2, 0),)))

    def inner(self, left: Any, right: Any) -> Any:
        """Return the sum over the last axes."""
        return self.tensordot(left, right, ((np.ndim(left) - 1,), (np.ndim(right) - 1,)))

    def tensordot(self, left: Any, right: Any, axes: Any = 2) -> Any:
        """Return the sum over some axes: the last of one and the first of the other, if their number is told."""
        if isinstance(axes, int):
            axes = tuple(range(np.ndim(left) - axes, np.ndim(left))), tuple(range(axes))
        sides = [(one,) if isinstance(one, int) else tuple(one) for one in axes]
        both = [tuple(axis % np.ndim(one) for axis in side) for one, side in zip((left, right), sides, strict=True)]
        return self.product(left, right, (tuple(both), ((), ())), "tensordot")

    def einsum(self, letters: Any, *several: Any) -> Any:
        """Return sums of products along axes that letters name; of several arrays two at a time."""
        if not isinstance(letters, str):
            return self.done("einsum", (letters, *several), np.einsum, {})
        names, out = axes_by_letters(letters, [np.ndim(one) for one in several])
        while len(several) > 2:
            rest = {*out, *(letter for name in names[2:] for letter in name)}
            kept = "".join(dict.fromkeys(letter for letter in names[0] + names[1] if letter in rest))
            first = self.einsum(f"{names[0]},{names[1]}->{kept}", *several[:2])
            names, several = [kept, *names[2:]], (first, *several[2:])
        spoken = f"{','.join(names)}->{out}"
        if len(several) < 2 or not is_product(names, out, [np.shape(one) for one in several]):
            return self.done("einsum", (spoken, *several), np.einsum, {})
        (first, second), both = names, [letter for letter in names[0] if letter in names[1]]
        along, batch = ([one for one in both if (one in out) == kept] for kept in (False, True))
        if not along:
            return self.done("mul", several, lambda *arrays: np.einsum(spoken, *arrays), {})
        places = [[tuple(name.index(one) for one in some) for name in names] for some in (along, batch)]
        said = self.product(several[0], several[1], places, "einsum")
        order = [*batch, *(one for one in first + second if one not in both)]
        return np.transpose(said, [order.index(letter) for letter in out]) if np.ndim(said) else said


PRODUCTS: dict[str, Callable[..., Any]] = {
    "dot": Notes.dot, "inner": Notes.inner, "tensordot": Notes.tensordot, "einsum": Notes.einsum,
    "matmul": Notes.matmul,
}  # fmt: skip


def is_of_x(value: Any) -> bool:
    """Say whether something is an array that was made of x."""
    memory = getattr(value, "memory", None)
    return isinstance(memory, Memory) and memory.of_x


def has_one_row(given: Sequence[Any], numbers: Any) -> bool:
    """Say whether each of two arrays has one axis of rows or of columns beside those of a product."""
    for value, along, batch in zip(given, *numbers, strict=True):
        lengths = [length for axis, length in enumerate(value.shape) if axis not in (*along, *batch)]
        if sum(length > 1 for length in lengths) > 1:
            return False
    return True


def leaves(value: Any) -> Iterator[Any]:
    """Yield arrays and numbers, also those in lists and tuples."""
    if isinstance(value, tuple | list):
        for one in value:
            yield from leaves(one)
    elif isinstance(value, np.ndarray | np.generic | float | int) and not isinstance(value, bool):
        yield value


def is_softmax(given: Array, said: Array) -> bool:
    """Say whether an answer is the softmax of an array along one of its axes."""
    if given.shape != said.shape:
        return False
    powers = np.exp(given - given.max())
    return any(np.allclose(said, powers / powers.sum(axis, keepdims=True)) for axis in range(given.ndim))


def axes_by_letters(letters: str, axes: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each array and of what is returned; dots are letters too, and what is returned is said."""
    given, arrow, out = letters.replace(" ", "").partition("->")
    names = given.split(",")
    free = [chr(one) for one in range(ord("A"), ord("Z") + 1) if chr(one) not in letters]
    counts = [
        count - len(name.replace("...", "")) if "..." in name else 0 for name, count in zip(names, axes, strict=True)
    ]
    dots = "".join(free[: max(counts)])
    names = [name.replace("...", dots[len(dots) - count :]) for name, count in zip(names, counts, strict=True)]
    every = "".join(names)
    if not arrow:
        out = dots + "".join(sorted(one for one in set(every) if every.count(one) == 1 and one not in dots))
    return names, out.replace("...", dots)


def is_product(names: Sequence[str], out: str, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Say whether letters tell a product of two arrays: each axis is that of both or of the answer, in one length."""
    lengths = [dict(zip(name, shape, strict=True)) for name, shape in zip(names, shapes, strict=True)]
    return all(
        len(own) == len(name) and all(other[letter] == length if letter in other else letter in out
                                      for letter, length in own.items())
        for name, own, other in zip(names, lengths, lengths[::-1], strict=True)
    )  # fmt: skip


@contextmanager
def watching(notes: Notes) -> Iterator[None]:
    """Let functions that make arrays return such as are watched, meanwhile: what is written into them is seen."""

    def fresh(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: watched_as(make(*plain(given), **plain(named)), Memory(notes))

    def of_any(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def made(value: Any, dtype: Any = None, *others: Any, **named: Any) -> Any:
            inside = list(watched_in(value))
            if isinstance(value, Watched):
                is_kept = dtype is None and (name != "array" or named.get("copy", True) is not True)
                return value if is_kept else value.copy() if dtype is None else value.astype(dtype)
            said = make(plain(value), dtype, *others, **named)
            return watched_as(said, notes.note("stack", inside, list(map(plain, inside)), said)) if inside else said

        return made

    before = {name: getattr(np, name) for name in (*FRESH, *OF_ANY)}
    exchanged = {name: fresh(before[name]) for name in FRESH} | {name: of_any(name, before[name]) for name in OF_ANY}
    vars(np).update(exchanged)
    notes.is_open = True  # entries may be called one by one
    try:
        yield
    finally:
        vars(np).update(before)
        notes.is_open = False
