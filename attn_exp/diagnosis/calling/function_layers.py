"""Functions that are layers: of x, and of arrays whose shapes nobody knows, or that lie in their file or in a closure.

An argument of which nothing is known is at first one that says when it is used. Then it is an array of the first shape
with which the call goes on, and another where it does not: all sizes differ, so that few do. What each array is for,
its effect on the answer tells, as that of a layer's parameters does.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import product
from time import thread_time
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.offer import is_required, parameters_of, plain, roles_taken
from attn_exp.diagnosis.asking.sides import biases_of, side_of_name
from attn_exp.diagnosis.calling.mappings import Mapped
from attn_exp.diagnosis.calling.neutral import (
    BATCH,
    GROUPS,
    HEADS,
    KEYS,
    OBJECT,
    POSITIONS,
    ROWS,
    SHARE,
    SIZE,
    WIDTH,
    ZERO,
    Context,
    Source,
    hinted,
    is_known,
    sources_of,
)
from attn_exp.diagnosis.calling.ways_into_layers import MEMORY
from attn_exp.diagnosis.code.jaxprs import errors_as_they_are
from attn_exp.diagnosis.code.libraries import Library, stack
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.diagnosis.code.source import names_in
from attn_exp.diagnosis.matrices.plain_layers import arrays_in
from attn_exp.diagnosis.matrices.plain_layers import plain as plain_numbers
from attn_exp.diagnosis.matrices.sizes_of_files import ONE_AT_A_TIME
from attn_exp.forms.pipeline import At
from attn_exp.own_code import LeftError, held
from attn_exp.rules.rules import Rules

Path = tuple[str | int, ...]
"""Where an array lies: the argument, then keys, names or places."""
OF_SIZES = (HEADS, GROUPS, SHARE, SIZE, WIDTH, BATCH, ROWS, KEYS)
MASKS = ("mask", "padding", "query_padding")
OF_FILE = ""
"""Where numbers lie of which the function's file has one each."""
MOST_TRIES, MOST_SECONDS = (40, 600), 1.5
"""Tries for one order of axes, in a first look at each and in a second, and seconds for all of them."""


@dataclass(frozen=True)
class Lengths:
    """The sizes of a first call: of x `[b t m]`, and of `n` numbers that all heads have together."""

    width: int = 24
    inner: int = 30
    heads: int = 3
    batch: int = 2
    rows: int = 7

    def of(self, letters: str) -> int:
        """Return the length of an axis by its letter, or its letter with a number before it."""
        known = {"m": self.width, "n": self.inner, "h": self.heads, "e": self.inner // self.heads, "f": 44,
                 "t": self.rows, "b": self.batch, "": 1}  # fmt: skip
        return int(letters.rstrip("mnheftb") or 1) * known[letters.lstrip("0123456789")]

    def context(self, given: Mapping[str, Any], library: str, batch: int = 0, rows: int = 0) -> Context:
        """Return what a call knows of its sizes."""
        batch, rows = batch or self.batch, rows or self.rows
        at = At(Rules(), batch, self.heads, self.heads, rows, rows, self.inner // self.heads, self.width)
        return Context(at, library, given)


MATRICES = ("m n", "n m", "m m", "n n", "m 3n", "3n m", "m 2n", "m f", "f m", "h m e", "h e m", "m h e", "h e", "m e",
            "3 m n", "3 h m e", "m 3 h e", "m 3 n", "2n f", "e e", "h e e", "h m 3e", "m h 3e")  # fmt: skip
VECTORS = ("n", "m", "f", "3n", "2n", "e", "n 1", "m 1", "f 1", "1 n", "1 m", "h e", "h 1 e", "1", "3 n", "3 h e")
TABLE = "64 m"
"""The shape of what has a row for each place of a token."""
ENTRIES, PAIRS = (3, 4, 1, 2, 6, 8), (2, 4)
"""How many members a list may have, and of how many each may be something else: a matrix and its bias, say."""


class UnsetError(Exception):
    """An argument was used of which nothing is known yet; `how` says whether as an array, a list, or a number."""

    def __init__(self, path: Path, how: str) -> None:
        super().__init__(f"{path} is used as {how}")
        self.path, self.how = path, how


class Unset:
    """What an argument is at first: its keys and names are such too, and all else that is done with it is an error."""

    def __init__(self, path: Path, known: Callable[[Path, bool], Any]) -> None:
        vars(self).update(_path=path, _known=known)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._known((*self._path, key), False)
        raise UnsetError(self._path, "a table" if isinstance(key, slice | tuple) else "a list")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in OF_ARRAYS:
            raise UnsetError(self._path, "an array")
        return self._known((*self._path, name), True)

    def get(self, key: str, default: Any = None) -> Any:
        """Return what lies at a key, whatever there is otherwise."""
        return self[key]

    def __contains__(self, key: Any) -> bool:
        """Say that any word is a key: what can do with more and without is given more."""
        if not isinstance(key, str):
            raise UnsetError(self._path, "a list")
        return True


def raising(how: str) -> Callable[..., Any]:
    """Return a method of what is not known, used in some way."""

    def method(self: Unset, *_: Any, **__: Any) -> Any:
        raise UnsetError(vars(self)["_path"], how)

    return method


OF_ARRAYS = {*dir(np.ndarray), "size", "dim", "view", "permute", "contiguous", "to", "float", "double", "unsqueeze",
             "device", "t", "mT", "H", "expand", "chunk", "split", "at", "matmul", "mm"} - {"get", "item"}  # fmt: skip
for word in ("matmul", "rmatmul", "add", "radd", "mul", "rmul", "sub", "rsub", "truediv", "rtruediv", "pow", "neg",
             "array", "array_ufunc", "array_function", "torch_function", "jax_array", "rpow", "invert", "and", "or",
             "abs"):  # fmt: skip
    setattr(Unset, f"__{word}__", raising("an array"))
for word in ("iter", "len"):
    setattr(Unset, f"__{word}__", raising("a list"))
for word in ("index", "int", "float", "floordiv", "rfloordiv", "mod", "rmod", "bool"):
    setattr(Unset, f"__{word}__", raising("a number"))
for word in ("lt", "gt", "le", "ge"):
    setattr(Unset, f"__{word}__", raising("a limit"))
setattr(Unset, "__format__", raising("a word"))  # noqa: B010 - as the others


@dataclass(eq=False)
class FunctionLayer:
    """A function as a layer of its x: `given` are its other arguments, of which arrays are the layer's own.

    `kept` and `closed` are what lies in its file and in its closure, copied: its own lie there again after each call.
    `numbers` are sizes that depend on the call, by argument, and `told` those of its file. `caches` are arguments in
    which it wants what earlier tokens left, at first as here: then each token is a call, with the axes of `step`.
    """

    function: Callable[..., Any]
    taken: Sequence[inspect.Parameter]
    lengths: Lengths
    given: dict[str, Any] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    closed: dict[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Source] = field(default_factory=dict)
    told: Mapping[str, Source] = field(default_factory=dict)
    caches: Mapping[str, tuple[Any]] = field(default_factory=dict)
    step: str = ""

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.Signature([one.replace(kind=one.KEYWORD_ONLY) for one in self.taken])

    def __call__(self, **named: Any) -> Any:
        return self.token_by_token(**named) if self.step else self.said(named)

    def token_by_token(self, **named: Any) -> Any:
        """Return the answers to tokens one after another, each with the caches that the one before it left.

        Raises:
            ValueError: there are several entries, and a call takes one.
        """
        word, answers = self.taken[0].name, []
        x, state = named.pop(word), {name: copy.copy(start) for name, (start,) in self.caches.items()}
        if x.ndim != len(self.step.replace("1", "t")) + ("1" not in self.step):
            raise ValueError("a call takes one token")
        counted = {name: 0 for name, source in self.numbers.items() if source in (ZERO, POSITIONS)}
        for place in range(x.shape[-2]):
            token = x[..., place, :]
            token = token[..., None, :] if "1" in self.step else token
            said = self.said({**named, **dict.fromkeys(counted, place), word: token, **state})
            output, *rest = said if isinstance(said, tuple) else (said,)
            state |= caches_in(rest, list(state))
            answers.append(output[..., 0, :] if "1" in self.step else output)
        return stack(answers, -2)

    def said(self, named: Mapping[str, Any]) -> Any:
        """Return what the function says to x and the other arguments that are no layer's own."""
        x = named[self.taken[0].name]
        batch, rows = (x.shape[0] if x.ndim > len("tm") else 1), x.shape[-2 if x.ndim > 1 else -1]
        context = self.lengths.context({"x": x}, type(x).__module__.partition(".")[0], batch, rows)
        numbers = {name: source.make(context) for name, source in self.numbers.items()}
        told = {name: source.make(context) for name, source in self.told.items()}
        given, kept, closed = (put_together(held) for held in (self.given, self.kept, self.closed))
        with lying_there(self.function, {**kept, **told}, closed):
            return self.function(**{**given, **numbers, **named})

    def apart(self) -> FunctionLayer:
        """Return the layer with each stack of several matrices taken apart, so that each is one of its own."""
        given, kept, closed = (planes_of(held, self.lengths.heads) for held in (self.given, self.kept, self.closed))
        return replace(self, given=given, kept=kept, closed=closed)


def caches_in(rest: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Return what a call returned beside its output as the next caches; nothing where it changes those that it has."""
    inner = rest[0] if len(rest) == 1 and len(names) > 1 and isinstance(rest[0], tuple | list) else rest
    return dict(zip(names, inner, strict=True)) if len(inner) == len(names) else {}


class Planes(list[Any]):
    """The matrices of a stack."""


def planes_of(value: Any, heads: int) -> Any:
    """Return what holds arrays with stacks of three or four, as of W_q, W_k and W_v, as their members."""
    if isinstance(value, dict):
        return type(value)({name: planes_of(one, heads) for name, one in value.items()})
    shape: tuple[int, ...] = tuple(getattr(value, "shape", ()))
    is_stack = len(shape) > len("mn") and shape[0] in STACKED and (shape[0] != heads or shape[-1] == shape[-2])
    return Planes(copied(value[place]) for place in range(shape[0])) if is_stack else value


STACKED = (3, 4)


def put_together(value: Any) -> Any:
    """Return what holds arrays with their stacks as arrays."""
    if isinstance(value, Planes):
        return stack(value, 0)
    return type(value)({name: put_together(one) for name, one in value.items()}) if isinstance(value, dict) else value


@contextmanager
def lying_there(function: Callable[..., Any], kept: Mapping[str, Any], closed: Mapping[str, Any]) -> Iterator[None]:
    """Let other things lie in a function's file and its closure meanwhile."""
    if not kept and not closed:  # calls may be made at the same time
        yield
        return
    code = inspect.unwrap(function)
    space, cells = getattr(code, "__globals__", {}), cells_of(code)
    with ONE_AT_A_TIME:
        before = {name: space[name] for name in kept}, {name: cells[name].cell_contents for name in closed}
        try:
            space.update(kept)
            for name, value in closed.items():
                cells[name].cell_contents = value
            yield
        finally:
            space.update(before[0])
            for name, value in before[1].items():
                cells[name].cell_contents = value


def cells_of(function: Any) -> dict[str, Any]:
    """Return the cells of a function's closure, by name."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    return dict(zip(code.co_freevars, cells, strict=True)) if code is not None and cells else {}


def read_of_file(function: Any) -> dict[str, Any]:
    """Return what a function reads of its file, and the functions that it calls there."""
    code = inspect.unwrap(function)
    space, found, rest = getattr(code, "__globals__", {}), dict[str, Any](), [code]
    for one in rest:
        for name in names_in(one.__code__) if inspect.isfunction(one) else ():
            if name in space and name not in found:
                found[name] = space[name]
                inner = inspect.unwrap(space[name])
                rest += [inner] if inspect.isfunction(inner) and inner.__globals__ is space else []
    return found


def copied(value: Any) -> Any:
    """Return a copy of what holds arrays, in the widest type of numbers that it may have."""
    with suppress(Exception):
        if hasattr(value, "detach"):
            return value.detach().clone().double() if value.is_floating_point() else value
        value = copy.deepcopy(value)
        return value.double().eval() if hasattr(value, "double") and hasattr(value, "eval") else value
    return value


def holding(things: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of those of some things that hold arrays of more than one number, and no mask."""
    return {name: copied(value) for name, value in things.items() if is_thing(value)
            and any(array.ndim and not is_mask(array) for _, _, array in arrays_in({name: value}))}  # fmt: skip


def is_mask(array: Any) -> bool:
    """Say whether an array is a mask that was made beforehand: a square of no more than two numbers."""
    shape = tuple(array.shape)
    return len(shape) > 1 and shape[-1] == shape[-2] > MOST_IN_MASKS == len(np.unique(plain_numbers(array)))


MOST_IN_MASKS = 2


def is_thing(value: Any) -> bool:
    """Say whether something may hold arrays, and is no module, class or function."""
    return not (inspect.isroutine(value) or inspect.ismodule(value) or inspect.isclass(value))


# The search for the shapes of arguments


@dataclass(frozen=True)
class Several:
    """A list of so many members."""

    count: int


@dataclass(frozen=True)
class Form:
    """Which argument is x, and its axes; where each token is a call, its axes, and what caches are at first."""

    x: str
    axes: str
    step: str = ""
    start: str = ""


Leaf = str | int | Source | Several | Array | None
"""What an argument, or a part of one, is: an array of a shape in letters, a number, a list, or plainly a value."""


class Search:
    """The search for what a function's arguments are, for x in one order of axes."""

    def __init__(self, function: Any, form: Form, lengths: Lengths, lent: Library, end: float) -> None:
        self.function, self.form, self.lengths, self.lent, self.end = function, form, lengths, lent, end
        self.parameters = parameters_of(function, "")
        self.rng = np.random.default_rng(71)
        self.drawn: dict[tuple[Path, str], Any] = {}
        self.children: dict[Path, dict[str, bool]] = {}
        self.handed: list[Path] = []
        self.tries, self.most = 0, MOST_TRIES[-1]
        code = inspect.unwrap(function)
        read, cells = read_of_file(code), cells_of(code)
        self.kept, self.closed = holding(read), holding({name: cell.cell_contents for name, cell in cells.items()})
        is_bare = not self.kept and not self.closed
        self.ints = {name: value for name, value in read.items() if type(value) is int} if is_bare else {}
        needed = [one for one in self.parameters if is_required(one)]
        self.sides = [one for one in self.parameters if one.name == form.x or is_side(one)]
        roles = roles_taken(self.parameters)
        self.words = [one for one in self.parameters if roles[one.name] in (*MASKS, "causal", "lengths")
                      and one not in self.sides]  # fmt: skip
        self.biases = biases_of([one.name for one in needed])
        names = [one.name for one in self.parameters if is_cache(one) and one.name != form.x] if form.step else []
        self.caches = {name: (self.start_of(name, form.start),) for name in names}
        self.sides = [one for one in self.sides if one.name not in names]
        rest = [one for one in needed if one not in self.sides and one not in self.words and one.name not in names]
        self.open = [one.name for one in rest if self.is_open(one)]
        self.numbers = {one.name: sources_of(one)[0] for one in self.parameters if one.name not in self.open and (
            one in rest or is_number(one))}  # fmt: skip

    def is_open(self, given: inspect.Parameter) -> bool:
        """Say whether nothing is sure of an argument: its name says nothing, a size, or only that it holds others."""
        name = given.name
        return not is_known(name) or name in self.biases or size_named(name) is not None or OBJECT in sources_of(given)

    def solutions(self, chosen: dict[Path, Leaf] | None = None) -> Iterator[dict[Path, Leaf]]:
        """Yield what arguments may be with which a call gives an answer for each token."""
        chosen = chosen or {}
        self.tries += 1
        if self.tries > self.most or thread_time() > self.end:
            return
        try:
            with held(), np.errstate(all="ignore"):
                answer = self.answer(chosen)
        except UnsetError as error:
            for leaf in self.leaves(error.path, error.how, chosen):
                yield from self.solutions({**chosen, error.path: leaf})
        except (Exception, LeftError) as error:
            for path in self.refused(error):
                for leaf in self.leaves(path, "an array", chosen):
                    yield from self.solutions({**chosen, path: leaf})
        else:
            if answer:
                yield chosen

    def refused(self, error: BaseException) -> list[Path]:
        """Return the path of what JAX refused as no array, though it was not asked: the first that has no parts."""
        is_refused = any(word in str(error) for word in ("__jax_array__", Unset.__name__))
        return [path for path in self.handed if path not in self.children][:1] if is_refused else []

    def answer(self, chosen: dict[Path, Leaf]) -> bool:
        """Say whether the answer of a call has a row for each token.

        Raises:
            UnsetError: an argument is used that is not chosen yet.
        """
        self.handed.clear()
        layer, sides = self.layer(chosen), {one.name: self.drawn_x() for one in self.sides}
        sides |= {one.name: self.value((one.name,), chosen) for one in self.words if is_required(one)}
        shape = shape_of_answer(layer, sides) if self.lent.name == "jax" else shape_of(layer(**sides))
        lengths = {"b": self.lengths.batch, "t": self.lengths.rows}
        fits = (lengths.get(axis, long) == long for axis, long in zip(self.form.axes, shape, strict=True))
        return len(shape) == len(self.form.axes) and all(fits) and shape[self.form.axes.index("m")] > 1

    def drawn_x(self) -> Any:
        """Return x."""
        return self.array(("x",), " ".join(self.form.axes))

    def layer(self, chosen: dict[Path, Leaf]) -> FunctionLayer:
        """Return the function as a layer, with what is chosen."""
        given = {name: self.value((name,), chosen) for name in self.open}
        taken = sorted([*self.sides, *self.words], key=lambda one: one.name != self.form.x)
        told = {name: self.told(name, chosen) for name in self.ints}
        return FunctionLayer(
            self.function, taken, self.lengths, given, self.kept, self.closed, self.numbers, told, self.caches,
            self.form.step,
        )  # fmt: skip

    def start_of(self, name: str, start: str) -> Any:
        """Return what a cache is before the first token: an empty array of a shape, a list, a mapping or None."""
        plain_starts: dict[str, Any] = {"{}": {}, "[]": [], "": None}
        return plain_starts[start] if start in plain_starts else self.array((name,), start)

    def told(self, name: str, chosen: Mapping[Path, Leaf]) -> Source:
        """Return what a number of the function's file is in a call: a size that its name says, or that fits."""
        size, path = size_named(name), (OF_FILE, name)
        if size is None and path in chosen:
            leaf = chosen[path]
            return leaf if isinstance(leaf, Source) else Source(name, lambda context: leaf)
        unset = Unset(path, lambda inner, as_name: self.value(inner, chosen, as_name))
        return Source(name, lambda context: unset) if size is None else size

    def whole(self, chosen: dict[Path, Leaf]) -> FunctionLayer:
        """Return the function as a layer in which nothing is open any more."""
        if not self.counts_heads(chosen):  # all numbers are those of one
            self.lengths = replace(self.lengths, heads=1)
        layer = self.layer(chosen)
        sizes = {name: leaf for name in self.open if isinstance(leaf := chosen.get((name,)), Source)}
        layer.given = {name: self.built((name,), chosen) for name in self.open if name not in sizes}
        layer.numbers = {**self.numbers, **sizes}
        return layer.apart()

    def counts_heads(self, chosen: Mapping[Path, Leaf]) -> bool:
        """Say whether a call is told a number of heads, or has a matrix for each: then they have as many numbers as
        x, which its code may count on."""
        sources = [*self.numbers.values(), *map(size_named, self.ints), *chosen.values()]
        sources += [size_named(name) for inner in self.children.values() for name in inner]
        parts = [
            leaf for leaf in chosen.values() if isinstance(leaf, Several) or (isinstance(leaf, str) and "h" in leaf)
        ]
        return bool(parts) or any(source is one for source in sources for one in (HEADS, GROUPS, SHARE))

    def value(self, path: Path, chosen: Mapping[Path, Leaf], is_name: bool = False) -> Any:
        """Return what lies at a path, as far as it is chosen."""
        if len(path) > 1 and isinstance(path[-1], str):
            self.children.setdefault(path[:-1], {})[path[-1]] = is_name
        if path not in chosen:
            number = size_named(str(path[-1])) if len(path) > 1 else None
            if number is not None:
                return number.make(self.lengths.context({}, self.lent.name))
            self.handed.append(path)
            return Unset(path, lambda inner, as_name: self.value(inner, chosen, as_name))
        leaf = chosen[path]
        if isinstance(leaf, str):
            return self.array(path, leaf)
        if isinstance(leaf, Several):
            return [self.value((*path, place), chosen) for place in range(leaf.count)]
        return leaf.make(self.lengths.context({}, self.lent.name)) if isinstance(leaf, Source) else leaf

    def built(self, path: Path, chosen: Mapping[Path, Leaf]) -> Any:
        """Return what lies at a path, with mappings for what is not chosen itself."""
        inner = self.children.get(path, {})
        if path in chosen and isinstance(leaf := chosen[path], Several):
            return [self.built((*path, place), chosen) for place in range(leaf.count)]
        if path in chosen or not inner:
            value = self.value(path, chosen)
            return None if isinstance(value, Unset) else value
        kind: type[dict[str, Any]] = Mapped if any(inner.values()) else dict
        return kind({key: self.built((*path, key), chosen) for key in inner})

    def array(self, path: Path, shape: str) -> Any:
        """Return an array of a shape, the same one each time."""
        if (path, shape) not in self.drawn:
            lengths = [self.lengths.of(letters) if letters.strip("0123456789") else int(letters)
                       for letters in shape.split()]  # fmt: skip
            numbers = self.rng.standard_normal(lengths)
            if path != ("x",):
                numbers = numbers / np.sqrt(lengths[-2]) * 1.3 if len(lengths) > 1 else 1 + 0.3 * numbers
            self.drawn[path, shape] = lent_at_once(self.lent, numbers)
        return self.drawn[path, shape]

    def leaves(self, path: Path, how: str, chosen: Mapping[Path, Leaf]) -> list[Leaf]:
        """Return what may lie at a path that is used in some way, the likeliest first."""
        name = uncounted(next((step for step in reversed(path) if isinstance(step, str)), ""))
        if any(one.name == path[0] for one in self.words):
            ones = [np.ones(shape, bool) for shape in self.mask_shapes()]
            return [self.lent.into(one, self.lent.widest) for one in ones]
        if path[0] == OF_FILE:
            return [ROWS, BATCH] if how == "a number" else [self.ints[name]] if how == "a limit" else []
        size = size_named(name) if len(path) == 1 else None
        if size is not None and how != "a list":
            return [size]
        if how in PLAINLY:
            return list(PLAINLY[how])
        is_bias = is_vector(path) or name in self.biases
        is_matrix = not is_bias and bool(side_of_name(name))
        shapes: tuple[str, ...] = (*VECTORS, *MATRICES) if is_bias else (*MATRICES, *(() if is_matrix else VECTORS))
        if isinstance(path[-1], int) and path[-1] > 0:
            alike = chosen[(*path[:-1], 0)]  # members of a list are alike, but those of a few may be told apart
            several = chosen.get(path[:-1])
            is_pair = isinstance(several, Several) and several.count in PAIRS
            others = [*beside_matrix(path, chosen), *MATRICES, *VECTORS] if is_pair else []
            return list(dict.fromkeys([alike, *others]))
        kinds = str | Several if how == "a list" else str
        siblings = [leaf for other, leaf in reversed(list(chosen.items())) if isinstance(leaf, kinds)
                    and len(other) == len(path) and is_vector(other) == is_vector(path)]  # fmt: skip
        counts = dict.fromkeys((self.lengths.heads, *ENTRIES))
        lists = [Several(count) for count in counts] if how == "a list" else []
        shapes = (TABLE, *shapes) if how == "a table" else shapes
        shapes = ("m e", *shapes) if any(isinstance(step, int) for step in path) and not is_bias else shapes
        likely = lists if how == "a list" and not siblings else beside_matrix(path, chosen) if is_bias else []
        return list(dict.fromkeys([*likely, *siblings[:1], *shapes, *lists, *([] if lists else [SIZE])]))

    def mask_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes that a mask may have."""
        t, b = self.lengths.rows, self.lengths.batch
        return [(t, t), (b, t, t), (b, 1, t, t), (b, t), (t,)]


PLAINLY: dict[str, tuple[Leaf, ...]] = {"a word": (0,), "a number": (SIZE, HEADS, WIDTH, ROWS, BATCH)}
"""What may be used as a number, or as a word of a key, as the number of a layer is."""


def lent_at_once(lent: Library, numbers: Array) -> Any:
    """Return an array in its library, also while JAX traces a call."""
    if lent.name != "jax":
        return lent.into(numbers, lent.widest)
    import jax  # noqa: PLC0415 - the function is one of its own

    with jax.ensure_compile_time_eval():
        return lent.into(numbers, lent.widest)


def shape_of(said: Any) -> tuple[int, ...]:
    """Return the shape of the first array of an answer."""
    return tuple(next(iter(parts_of(said).values())).shape)


def shape_of_answer(layer: FunctionLayer, given: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of the answer of a function of JAX, which computes nothing for it where it can be traced."""
    import jax  # noqa: PLC0415 - the function is one of its own

    arrays = {name: value for name, value in given.items() if hasattr(value, "dtype")}
    rest = {name: value for name, value in given.items() if name not in arrays}
    try:
        with errors_as_they_are(jax.config):
            return shape_of(jax.eval_shape(lambda held: layer(**held, **rest), arrays))
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # it wants values
        return shape_of(layer(**given))


def is_number(given: inspect.Parameter) -> bool:
    """Say whether the default of a parameter is a size."""
    return type(given.default) is int and sources_of(given)[0] in (HEADS, GROUPS, SIZE, WIDTH)


def is_side(given: inspect.Parameter) -> bool:
    """Say whether an argument is x, q, k, v or a memory."""
    return is_required(given) and (side_of_name(given.name) in ("x", "q", "k", "v") or plain(given.name) in MEMORY)


def beside_matrix(path: Path, chosen: Mapping[Path, Leaf]) -> list[Leaf]:
    """Return the shapes that a bias may have beside the matrix that was chosen last of those that lie where it does."""
    shape = next((leaf for other, leaf in reversed(list(chosen.items())) if other[:-1] == path[:-1]
                  and isinstance(leaf, str) and len(path) > 1 and not is_vector(other)), "")  # fmt: skip
    letters = [letter for letter in shape.split() if letter != "m"]
    return [*([" ".join(letters)] if letters else []), "m"] if shape else []


def is_vector(path: Path) -> bool:
    """Say whether a name on the way to an array speaks of a bias, or of what a norm holds."""
    return any(isinstance(step, str) and OF_VECTORS.fullmatch(uncounted(step).lower()) is not None for step in path)


def uncounted(name: str) -> str:
    """Return a name without the number of a layer and what stands before it: `block_0_wq` is a `wq`."""
    return re.sub(r"^.*\d_", "", name)


OF_VECTORS = re.compile(r"b\d*|b_\w+|b[qkvo]\w{0,3}|g\d*|.*(bias|beta|gamma|gain|norm|ln).*")


def size_named(name: str) -> Source | None:
    """Return the size that a name speaks of, if it does."""
    first = next(hinted(name.strip("_"), ""), None)
    return first if first in OF_SIZES else None


def is_cache(given: inspect.Parameter) -> bool:
    """Say whether an argument is what earlier tokens left."""
    return is_required(given) and names_cache(given.name)


def names_cache(name: str) -> bool:
    """Say whether a name speaks of what earlier tokens left."""
    return bool(re.search(r"(?i)cache|past|prev|hist", name))


def searches(function: Any, x: str, lengths: Lengths, lent: Library, end: float) -> Iterator[Search]:
    """Yield the searches for a function's arguments: with each order of axes of x, or of a token beside caches."""
    if any(is_cache(one) and one.name != x for one in parameters_of(function, "")):
        for start, (step, axes) in product(STARTS, STEPS):
            yield Search(function, Form(x, axes, step, start), lengths, lent, end)
    else:
        yield from (Search(function, Form(x, axes), lengths, lent, end) for axes in AXES)


def sizes_told(function: Any) -> dict[str, Source]:
    """Return the sizes of a function's file that it reads, by their names, where it holds no arrays of these sizes."""
    read = read_of_file(function) if inspect.isfunction(inspect.unwrap(function)) else {}
    if any(array.ndim for _, _, array in arrays_in({name: value for name, value in read.items() if is_thing(value)})):
        return {}
    told = {name: size for name, value in read.items() if type(value) is int
            and (size := size_named(name)) is not None}  # fmt: skip
    heads, sizes = ({read[name] for name, size in told.items() if size is one} for one in (HEADS, SIZE))
    wide = {count * size for count in heads for size in sizes if count > 1}  # `d` beside `d_head` is that of x
    return {name: WIDTH if size is SIZE and read[name] in wide else size for name, size in told.items()}


# Functions as layers

AXES = ("btm", "tm", "mt")
STEPS = (("m", "tm"), ("1m", "tm"), ("bm", "btm"), ("b1m", "btm"))
"""The axes of one token in a call, and of all of them."""
STARTS = ("0 n", "0 h e", "h 0 e", "b 0 n", "b h 0 e", "b 0 h e", "", "[]", "{}")
"""What a cache may be before the first token: an empty array, None, a list or a mapping."""
SIZES = (Lengths(), Lengths(inner=24), Lengths(width=40, inner=40, heads=4))
"""Numbers of x and of all heads: others where that can be, else the same."""


def function_layers(function: Any, lent: Library) -> Iterator[tuple[FunctionLayer, Lengths]]:
    """Yield a function as a layer, in each way with which a call gives an answer for each token."""
    if "jax" in type(function).__module__:  # what JAX compiles takes nothing that says when it is used
        function = inspect.unwrap(function)
    for called, lengths in ways_to_make(function, lent):
        end = thread_time() + MOST_SECONDS
        every = [one for x in inputs_of(called)[:3] for one in searches(called, x, lengths, lent, end)]
        for most, search in product(MOST_TRIES, every):
            search.tries, search.most = 0, most
            found = next(search.solutions(), None)
            if found is None:
                continue
            if lengths.inner == lengths.width or not search.counts_heads(found):
                layer = search.whole(found)
                if any(True for _ in arrays_in(layer)):
                    yield layer, layer.lengths
            break


def ways_to_make(function: Any, lent: Library) -> Iterator[tuple[Any, Lengths]]:
    """Yield a function, or what it makes of sizes, with the sizes of a call."""
    for sizes in SIZES:
        made = made_by(function, sizes, lent)
        for lengths in lengths_of(made, sizes):
            is_new = lengths == sizes or sizes == SIZES[0]
            if is_new if made is function else sizes.inner == sizes.width:
                yield made, lengths


def lengths_of(function: Any, usual: Lengths) -> Iterator[Lengths]:
    """Yield the usual sizes, or those that the arrays say which lie in a function's file or in its closure."""
    things = {**read_of_file(function), **{name: cell.cell_contents for name, cell in cells_of(function).items()}}
    arrays = [tuple(array.shape) for _, _, array in arrays_in(holding(things))]
    heads = next((value for name, value in things.items() if type(value) is int and size_named(name) is HEADS), 1)
    widths = dict.fromkeys(long for shape in arrays if len(shape) > 1 for long in shape[-2:])
    if not widths:
        yield usual
    for width in widths:
        yield Lengths(width=width, inner=width, heads=heads)


def inputs_of(function: Any) -> list[str]:
    """Return which arguments may be x, the likeliest first."""
    needed = [one for one in parameters_of(function, "") if is_required(one)]
    named = [one.name for one in needed if side_of_name(one.name) in ("x", "q") and not is_cache(one)]
    unknown = [one.name for one in needed if not is_known(one.name) and not is_cache(one)]
    unknown.sort(key=lambda name: side_of_name(name).startswith("W"))
    attended = [one.name for one in needed if plain(one.name) in MEMORY]
    asking = [name for name in unknown if name not in attended and not side_of_name(name)]
    if attended and asking and set(named) <= set(attended):  # what is beside a memory asks it
        return asking[:1]
    return named[:1] or [*unknown[:2], *(one.name for one in needed if size_named(one.name) and not is_cache(one))]


def made_by(function: Any, lengths: Lengths, lent: Library) -> Any:
    """Return what a function makes that takes sizes alone and returns a function, else the function itself."""
    taken = parameters_of(function, "")
    if not all(is_known(one.name) for one in taken if is_required(one)):
        return function
    context = lengths.context({"x": lent.into(np.zeros(1), lent.widest)}, lent.name)
    sources = {one.name: sources_of(one)[0] for one in taken if is_required(one) or is_number(one)}
    if HEADS in sources.values() and WIDTH not in sources.values():  # what else is a size is that of x
        sources = {name: WIDTH if source is SIZE else source for name, source in sources.items()}
    given = {name: source.make(context) for name, source in sources.items()}
    with suppress(Exception, LeftError), held():
        made = function(**given)
        if callable(made) and not inspect.isclass(made):
            return made
    return function
