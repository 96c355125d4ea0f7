"""Layers of no library: objects of a class of somebody's own that hold matrices as plain arrays, of NumPy mostly."""

from __future__ import annotations

import copy
import dis
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.code import watching, watching_jax, watching_numpy
from attn_exp.diagnosis.code.libraries import in_jax, library_of
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.diagnosis.code.traced import compiled
from attn_exp.diagnosis.matrices.idle import idle_matrices
from attn_exp.diagnosis.matrices.layers import ROUNDING_OF_SINGLE
from attn_exp.own_code import held

DEPTH = 6
"""How far down in an object arrays are looked for."""
METHODS = ("forward", "__call__", "call", "attention", "attend", "self_attention", "apply")
"""What people call the method that does it."""
IN_TRAINING = ("training", "is_training", "train_mode", "is_train")


class PlainLayer:
    """An object with arrays inside, as a layer: each of them can be exchanged where it lies.

    `kept` are the names of those that are numbers of its own, where calls leave others behind.
    """

    of_norms: frozenset[str] = frozenset()

    def __init__(self, made: Any, kept: Collection[str] | None = None) -> None:
        self.module, self.box = made, Box()
        self.places: dict[str, tuple[Any, Any]] = {}
        self.library, single = "numpy", False
        for name, (home, key), array in arrays_in(made):
            if kept is not None and name not in kept:
                continue
            self.places[name] = (home, key)
            self.library = library_of(array)
            if self.library == "numpy" and array.dtype != np.float64:
                write(home, key, array.astype(np.float64))
            single |= self.library == "jax" or ("float32" in str(array.dtype) and self.library == "torch")
        self.rounding = ROUNDING_OF_SINGLE if single else 1e-7
        self.kind = "float32" if single else "float64"
        self.empty = [name for name, array in self.parameters.items() if not array.any()]
        """What holds zeros alone as it was made, as gradients do, and what an optimizer keeps."""
        self.forward: Callable[..., Any] = held_by(made, method_of(type(made))) or made

    @property
    def parameters(self) -> Mapping[str, Array]:
        """Every array, in float64."""
        return {name: plain(read(*place)) for name, place in self.places.items()}

    def put(self, values: Mapping[str, Array]) -> None:
        """Write numbers into arrays."""
        for name, array in values.items():
            home, key = self.places[name]
            before = read(home, key)
            if prod(before.shape) != array.size:  # a call made it anew, for other sizes
                continue
            shaped = np.ascontiguousarray(array).reshape(before.shape)
            if self.library == "numpy" and before.flags.writeable:
                before[...] = shaped  # others may hold the same array
            elif self.library == "torch":
                before.detach().copy_(before.new_tensor(shaped))
            else:
                write(home, key, like(shaped, before))

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self.calls[-1](positional, named)

    @cached_property
    def calls(self) -> list[Callable[[Any, Any], Any]]:
        """How it is called now, last: as it is, or watching its operations."""
        if self.library == "jax":
            return [lambda positional, named: self.whole(self.now, positional, named)]
        return [self.boxed]

    def boxed(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return what it says, given arrays in the class that its file has for them, where it takes no others."""
        return self.box.opened(self.forward(*self.box.closed(positional), **self.box.closed(named)))

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Let each call be one of a copy meanwhile: what a first call makes is made for the sizes of that call."""

        def call(positional: Any, named: Any) -> Any:
            one = copy.deepcopy(self.module)
            does = held_by(one, method_of(type(one))) or one
            return self.box.opened(does(*self.box.closed(positional), **self.box.closed(named)))

        self.calls.append(call)
        try:
            yield
        finally:
            self.calls.pop()

    def settled(self, calls: Sequence[Callable[[], Any]]) -> PlainLayer:
        """Return the layer with what its first call made, without what each of several calls left behind.

        What stays the same array with the same numbers from one call to the next is its own.
        """
        before: dict[str, tuple[Any, Array]] = {}
        self.calls.append(self.boxed)
        for call in calls:
            call()
            now = {name: (array, plain(array)) for name, _, array in arrays_in(self.module)}
            before = {name: now[name] for name, (array, numbers) in (before or now).items()
                      if name in now and now[name][0] is array and np.array_equal(now[name][1], numbers, equal_nan=True)
                      }  # fmt: skip
        self.calls.pop()
        made = PlainLayer(self.module, before)
        made.box = self.box
        return made

    @property
    def now(self) -> dict[str, Any]:
        """What it holds."""
        return {name: read(*place) for name, place in self.places.items()}

    def applied(self, held: Mapping[str, Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return what it says where it holds these arrays."""
        before = self.now
        try:
            self.write_all(held)
            return self.forward(*positional, **named)
        finally:
            self.write_all(before)

    @cached_property
    def whole(self) -> Callable[..., Any]:
        """The object as a function of what it holds and what it is given, compiled as a whole."""
        return compiled(self.applied)

    def told(self, call: Callable[[], Any], given: Sequence[Any], theirs: Collection[str], instead: Any) -> Any:
        """Return the operations of a call and what it returns; no argument of a name in `theirs` is made of x."""
        if self.library == "torch":
            return watching.watched(call, [one for one in given if one is not None], instead)
        of_jax = self.library == "jax"
        notes: Any = watching_jax.Notes(instead or {}) if of_jax else watching_numpy.Notes(instead or {})

        def noting(positional: Any, named: Any) -> Any:
            if of_jax:
                return watching_jax.noted(self.applied, self.now, positional, named, theirs, notes)
            of_x = {name: value if name in theirs else notes.of_x(value) for name, value in named.items()}
            with watching_numpy.watching(notes):
                return self.boxed(notes.of_x(positional), of_x)

        self.calls.append(noting)
        try:
            said = call()
        finally:
            self.calls.pop()
        return notes.operations, said

    def lent_as_it_is(self, mask: Any) -> Any:
        """Return a mask in the library of the layer: one of booleans or whole numbers keeps its type."""
        return like(np.array(mask), next(iter(self.now.values()))) if isinstance(mask, np.ndarray) else mask

    def write_all(self, values: Mapping[str, Any]) -> None:
        """Let other arrays lie where its own do."""
        for name, value in values.items():
            write(*self.places[name], value)

    def lent(self, array: Array) -> Any:
        """Return an array in the library and the type of the layer."""
        return like(np.array(array), read(*next(iter(self.places.values()))))

    def answer(self, way: Any, x: Array, memory: Array | None) -> Array:
        """Return the answer of a call as NumPy has it."""
        given = [None if one is None else self.lent(one) for one in (x, memory)]
        with held():
            said = way.call(self, *given)
        return plain(next(iter(parts_of(said).values())))

    def see_type(self, way: Any) -> None:
        """Call it once: what answers in float32 computes in it, whatever type its arrays have."""
        with held():
            said = way.call(self, self.lent(np.random.default_rng(5).standard_normal((2, way.tokens or 7, way.width))))
        if "float32" in str(getattr(next(iter(parts_of(said).values()), None), "dtype", "")):
            self.rounding, self.kind = ROUNDING_OF_SINGLE, "float32"

    def leave_out_idle(self, way: Any) -> None:
        """Leave out what held zeros when it was made and changes nothing, as gradients do."""
        x = np.random.default_rng(7).standard_normal((2, way.tokens or 7, way.width))
        others = [name for name in self.places if name not in self.empty]
        for name in idle_matrices(self, lambda: self.answer(way, x, x if way.memory else None), others):
            del self.places[name]

    def without_norms(self) -> Any:
        """Nothing can be left out of what is no module."""
        return nullcontext()

    @contextmanager
    def watched(self) -> Iterator[list[Any]]:
        """Nothing inside is seen."""
        yield []


@dataclass(frozen=True)
class Box:
    """A class of a file's own that holds an array under a name, and counts with it; none where `kind` is None."""

    kind: Any = None
    key: str = ""

    def closed(self, value: Any) -> Any:
        """Return each array of floats in a box, also those in lists, tuples and mappings."""
        if isinstance(value, tuple | list):
            return type(value)(self.closed(one) for one in value)
        if isinstance(value, Mapping):
            return {name: self.closed(one) for name, one in value.items()}
        is_array = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        return self.kind(value) if is_array and self.kind is not None else value

    def opened(self, value: Any) -> Any:
        """Return each box as what it holds, also those in lists and tuples."""
        if self.kind is not None and isinstance(value, tuple | list):
            return type(value)(self.opened(one) for one in value)
        return getattr(value, self.key) if self.kind is not None and isinstance(value, self.kind) else value


def boxes_of(layer: PlainLayer) -> Iterator[Box]:
    """Yield the classes of what holds the arrays of a layer that hold an array that they are made of, as it is."""
    array = np.random.default_rng(3).standard_normal((2, 3))
    for kind, key in dict.fromkeys((type(home), key) for home, key in layer.places.values()):
        with suppress(Exception):  # most are layers, and made of something else
            if hasattr(kind, "__mul__") and np.allclose(getattr(kind(array), key), array):
                yield Box(kind, key)


def may_be_layer(function: Any) -> bool:
    """Say whether something is a class of somebody's own, or an object of one, that may hold matrices."""
    kind = function if inspect.isclass(function) else type(function)
    is_own = str(kind.__module__).partition(".")[0] not in ("builtins", "functools", "types", "torch", "jax", "numpy")
    return is_own and bool(method_of(kind))


def method_of(kind: type) -> str:
    """Return what a class calls the method that does it, or nothing: a usual name, or one that speaks of attention.

    Of several such it is one that no other method calls; else it is the only method that takes anything.
    """
    methods = {name: one for home in reversed(kind.__mro__[:-1]) for name, one in vars(home).items() if callable(one)}
    usual = next((word for word in METHODS if word in methods), "")
    named = {name: one for name, one in methods.items() if "atten" in name.lower() and inspect.isfunction(one)}
    called = {word for one in methods.values() if inspect.isfunction(one) for word in one.__code__.co_names}
    free = [name for name, one in named.items() if name not in called and one.__code__.co_argcount > 1]
    public = [name for name, one in methods.items() if not name.startswith("_") and inspect.isfunction(one)]
    only = [name for name in public if methods[name].__code__.co_argcount > 1]
    return usual or next(iter(free), only[0] if len(only) == 1 else "")


def keeps_what_it_makes(kind: type, only_names: bool = False) -> bool:
    """Say whether a method of a class of somebody's own writes to an attribute or a key, as one does that makes its
    matrices when it is called first; `only_names`: to an attribute, as what is written into an array is no matrix."""
    methods = [one for home in kind.__mro__[:-1] for name, one in vars(home).items()
               if inspect.isfunction(one) and name not in ("__init__", "__new__")]  # fmt: skip
    kept = ("STORE_ATTR",) if only_names else ("STORE_ATTR", "STORE_SUBSCR")
    return any(step.opname in kept for one in methods for step in dis.get_instructions(one))


def matrices_in(made: Any) -> bool:
    """Say whether an object holds a matrix."""
    return any(sum(length > 1 for length in array.shape) > 1 for _, _, array in arrays_in(made))


def evaluated(made: Any) -> Any:
    """Return an object with all that is inside told that this is no training."""
    for one in objects_in(made):
        read, texts = names_and_texts(type(one))
        with suppress(Exception):  # frozen
            for word in IN_TRAINING:
                if held_by(one, word) is True or (word in read and held_by(one, word) is None):
                    setattr(one, word, False)
            if "mode" in read and texts and not isinstance(held_by(one, "mode"), bool | int):  # some are told it later
                one.mode = next((text for text in OF_EVALUATION if text in texts), OF_EVALUATION[0])
    return made


OF_EVALUATION = ("eval", "test", "inference", "evaluation", "val", "predict")
"""What people call the mode that is no training."""


def names_and_texts(kind: type) -> tuple[set[str], set[str]]:
    """Return the names and the texts that the methods of a class of somebody's own read."""
    codes = [one.__code__ for home in kind.__mro__ for one in vars(home).values() if inspect.isfunction(one)]
    texts = {text for code in codes for text in code.co_consts if isinstance(text, str)}
    return {name for code in codes for name in code.co_names}, texts


def objects_in(made: Any) -> Iterator[Any]:
    """Yield an object and the objects that it holds."""
    seen = set[int]()
    rest = [(made, 0)]
    while rest:
        one, depth = rest.pop()
        if (
            id(one) in seen
            or depth > DEPTH
            or held_by(one, "dtype") is not None
            or (type(one).__module__ in ("builtins", "numpy") and depth and not inside(one))
        ):
            continue
        seen.add(id(one))
        yield one
        rest += [(value, depth + 1) for _, value in inside(one)]


def held_by(one: Any, name: str) -> Any:
    """Return an attribute of somebody's object, or None where there is none: some raise errors of their own then."""
    try:
        return getattr(one, name, None)
    except Exception:
        return None


def inside(one: Any) -> list[tuple[Any, Any]]:
    """Return what an object holds: attributes, or members of a list or a dictionary, with their names."""
    if isinstance(one, Mapping):
        return list(one.items())
    if isinstance(one, list | tuple):
        return list(enumerate(one))
    slots = {name: value for name in getattr(type(one), "__slots__", ()) if (value := held_by(one, name)) is not None}
    return list((getattr(one, "__dict__", None) or slots).items())


def arrays_in(made: Any, name: str = "", depth: int = 0, seen: set[int] | None = None) -> Iterator[Any]:
    """Yield the name, the home and key, and the array of each array of floats that an object holds, once.

    One of two axes that holds two numbers alone is a mask, and no matrix.
    """
    seen = set() if seen is None else seen
    if id(made) in seen or depth > DEPTH or isinstance(made, str | bytes | type) or (callable(made) and depth > 1 and (
        inspect.isroutine(made)
    )):  # fmt: skip
        return
    seen.add(id(made))
    for key, value in inside(made):
        word = f"{name}.{key}" if name else str(key)
        if held_by(value, "dtype") is not None and held_by(value, "shape") is not None:
            is_float = "float" in str(value.dtype) and not isinstance(value, np.generic)  # a size is one, as sqrt(d) is
            if is_float and id(value) not in seen and not is_mask(value) and not isinstance(made, tuple):
                seen.add(id(value))
                yield word, (made, key), value
        elif not isinstance(value, int | float | complex | None):
            yield from arrays_in(value, word, depth + 1, seen)


def is_mask(array: Any) -> bool:
    """Say whether an array of two axes or more holds two numbers alone, as one of 0 and 1 does."""
    return bool(array.ndim > 1 and 1 < np.unique(plain(array)).size <= 2 < plain(array).size)


def plain(array: Any) -> Array:
    """Return an array of any library in NumPy, in float64."""
    array = array.detach().cpu() if hasattr(array, "detach") else array
    return np.array(array, np.float64)


def like(array: Array, other: Any) -> Any:
    """Return an array of NumPy in the library and the type of another."""
    home = library_of(other)
    if home == "torch":
        return other.new_tensor(array)
    if home == "jax":
        return in_jax(array, other.dtype)
    return array


def read(home: Any, key: Any) -> Any:
    """Return what lies at a key of a list or a dictionary, or under a name of an object."""
    return home[key] if isinstance(home, Mapping | list) else getattr(home, key)


def write(home: Any, key: Any, value: Any) -> None:
    """Let something else lie there."""
    if isinstance(home, MutableMapping | list):
        home[key] = value
    else:
        setattr(home, key, value)
