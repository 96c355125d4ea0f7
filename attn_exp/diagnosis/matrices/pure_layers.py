"""Layers of flax, haiku, Equinox and Keras behind the face of `layers.py`: pure functions of their parameters.

Nothing of these libraries is imported here: a class that derives from one of theirs has brought it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.code.libraries import in_jax
from attn_exp.diagnosis.code.traced import compiled, of_arrays
from attn_exp.diagnosis.code.watching import watched as watched_in_torch
from attn_exp.diagnosis.code.watching_jax import Notes, noted
from attn_exp.diagnosis.matrices.building_keras import built, without_logs
from attn_exp.diagnosis.matrices.layers import ROUNDING_OF_SINGLE
from attn_exp.diagnosis.matrices.named_matrices import sounds_like

HOMES = {"flax.linen": "linen", "flax.nnx": "nnx", "haiku": "haiku", "equinox": "equinox", "keras": "keras"}
"""Where the base class of a layer lives, and what kind of layer that makes it."""


@dataclass(frozen=True)
class Pair:
    """What makes the parameters of a layer, of a random key and perhaps the shape of x, and what applies them to x, as
    stax has them."""

    init: Callable[..., Any]
    apply: Callable[..., Any]


def kind_of(function: Any) -> str:
    """Return which library a layer, or a class of them, comes from; nothing where it is none of these."""
    kind = function if inspect.isclass(function) else type(function)
    if issubclass(kind, Pair):
        return "pair"
    for base in kind.__mro__:
        if base.__name__ in ("Module", "Layer"):
            for home, name in HOMES.items():
                if base.__module__.startswith(home):
                    return name
    return ""


Handle = Callable[[str, Any, Any, Callable[[], Any]], Any]
"""What is done in place of a norm: it is told its path and the norm, what that is given, and how to call it."""
Meeting = Callable[[Handle], AbstractContextManager[Any]]


def met_nowhere(handle: Handle) -> AbstractContextManager[None]:
    """Do nothing in place of norms."""
    return nullcontext()


def met_by(intercept: Callable[[Any], AbstractContextManager[Any]], path_of: Callable[[Any], str]) -> Meeting:
    """Return how norms are met in a library that lets calls of modules be intercepted."""

    def meeting(handle: Handle) -> AbstractContextManager[Any]:
        def stand_in(call: Any, given: Any, named: Any, context: Any) -> Any:
            is_named_so = "norm" in type(context.module).__name__.lower() and context.method_name == "__call__"
            if not is_named_so or not given or not hasattr(given[0], "shape") or not path_of(context.module):
                return call(*given, **named)
            return handle(path_of(context.module), context.module, given[0], lambda: call(*given, **named))

        return intercept(stand_in)

    return meeting


@dataclass
class PureLayer:
    """A layer as a function of its parameters: `applied` makes one of numbers by name."""

    leaves: dict[str, Any]
    applied: Callable[[Mapping[str, Any]], Callable[..., Any]]
    forward: Callable[..., Any]
    rounding: float = ROUNDING_OF_SINGLE
    meeting: Meeting = field(default_factory=lambda: met_nowhere)
    """Within it, what a norm inside would do is done by somebody else."""
    of_norms: set[str] = field(default_factory=set)
    """Parameters of the norms that were met."""
    met: list[Any] = field(default_factory=list)
    """The norms that were met at last, in the order of the calls."""
    module: Any = None
    """What its class made."""
    never_called: list[str] = field(default_factory=list)
    """The layers inside that were made, and got no numbers, as the first call gives them and never called them."""
    hidden: set[str] = field(default_factory=set)
    traces: dict[Any, Any] = field(default_factory=dict)
    """What it was traced as for inputs of some sizes, where its operations are noted."""

    @property
    def parameters(self) -> Mapping[str, Array]:
        """Every parameter, in float64."""
        return {name: np.asarray(leaf, np.float64) for name, leaf in self.leaves.items() if name not in self.hidden}

    def hide(self, names: Collection[str]) -> Callable[[], None]:
        """Count some parameters no longer among those of the layer, and return what counts them again."""
        self.hidden = set(names)
        return self.hidden.clear

    def put(self, values: Mapping[str, Array]) -> None:
        """Write numbers into parameters."""
        for name, array in values.items():
            before = self.leaves[name]
            self.leaves[name] = np.asarray(array, np.float32).reshape(before.shape)

    @cached_property
    def whole(self) -> Callable[..., Any]:
        """The layer as a function of its parameters and what it is given, compiled as a whole."""
        return compiled(lambda leaves, positional, named: self.applied(leaves)(*positional, **named))

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self.calls[-1](dict(self.leaves), positional, named)

    @cached_property
    def calls(self) -> list[Callable[..., Any]]:
        """How it is called now, last: as a whole, without its norms, or watching them."""
        return [self.whole]

    @cached_property
    def whole_without_norms(self) -> Callable[..., Any]:
        """The layer as a function, compiled, in which norms hand on what they are given."""

        def applied(leaves: Mapping[str, Any], positional: Any, named: Any) -> Any:
            with self.meeting(lambda path, norm, given, call: given if self.is_norm(path) else call()):
                return self.applied(leaves)(*positional, **named)

        return compiled(applied)

    @cached_property
    def whole_with_norms(self) -> Callable[..., Any]:
        """The layer as a function, compiled, that returns what norms are given and what they return beside."""

        def applied(leaves: Mapping[str, Any], positional: Any, named: Any) -> Any:
            seen, self.met = list[Any](), []

            def note(path: str, norm: Any, given: Any, call: Callable[[], Any]) -> Any:
                said = call()
                if self.is_norm(path):
                    seen.append((of_all_tokens(given), of_all_tokens(said)))
                    self.met.append(norm)
                return said

            with self.meeting(note):
                return self.applied(leaves)(*positional, **named), seen

        return compiled(applied)

    def is_norm(self, path: str) -> bool:
        """Say whether what has a norm's name holds no matrix; its parameters are noted."""
        inside = {name for name in self.leaves if name.startswith(f"{path}/")}
        if any(sum(length > 1 for length in np.shape(self.leaves[name])) > 1 for name in inside):
            return False
        self.of_norms |= inside
        return True

    def lent(self, array: Array) -> Any:
        """Return an array in the library and the type of the layer."""
        return in_jax(array, np.float32)

    def answer(self, way: Any, x: Array, memory: Array | None) -> Array:
        """Return the answer of a call as NumPy has it."""
        given = [None if one is None else self.lent(one) for one in (x, memory)]
        return np.asarray(first_of(way.call(self, *given)), np.float64)

    @property
    def stateless(self) -> tuple[Callable[..., Any], Any]:
        """The layer as a function of what it holds and of what it is given, in a row and by name; and what it holds."""
        return lambda leaves, positional, named: self.applied(leaves)(*positional, **named), dict(self.leaves)

    def told(self, call: Callable[[], Any], given: Sequence[Any], theirs: Collection[str], instead: Any) -> Any:
        """Return the operations of a call and what it returns; no argument of a name in `theirs` is made of x."""
        notes = Notes(instead or {})

        def noting(positional: Any, named: Any) -> Any:
            return noted(*self.stateless, positional, named, theirs, notes, self.traces)

        with self.called_by(noting):
            said = call()
        return notes.operations, said

    @contextmanager
    def called_by(self, noting: Callable[[Any, Any], Any]) -> Iterator[None]:
        """Let somebody else make its calls."""
        self.calls.append(lambda _, positional, named: noting(positional, named))
        try:
            yield
        finally:
            self.calls.pop()

    def lent_as_it_is(self, mask: Any) -> Any:
        """Return a mask in the library of the layer: one of booleans or whole numbers keeps its type."""
        if not isinstance(mask, np.ndarray):
            return mask
        return self.lent(mask) if mask.dtype.kind == "f" else np.array(mask)

    @contextmanager
    def without_norms(self) -> Iterator[None]:
        """Let every norm inside hand on what it is given."""
        self.calls.append(self.whole_without_norms)
        try:
            yield
        finally:
            self.calls.pop()

    @contextmanager
    def watched(self) -> Iterator[list[Any]]:
        """Note what every norm inside is given and what it returns, in the order of the calls."""
        found = list[Any]()

        def noting(*given: Any) -> Any:
            said, seen = self.whole_with_norms(*given)
            found.extend((norm, *pair) for norm, pair in zip(self.met, seen, strict=True)
                         if not any(map(is_tracer, pair)))  # fmt: skip
            return said

        self.calls.append(noting)
        try:
            yield found
        finally:
            self.calls.pop()


def is_tracer(array: Any) -> bool:
    """Say whether an array has no numbers: what a norm sees inside a loop of JAX is no number outside."""
    return isinstance(array, sys.modules["jax"].core.Tracer)


def of_all_tokens(array: Any) -> Any:
    """Return an array as it is outside of `vmap`: a norm that is mapped over tokens `[t m]` sees `[m]`."""
    while hasattr(array, "batch_dim"):
        place = array.batch_dim
        array = array.val if not isinstance(place, int) else sys.modules["jax"].numpy.moveaxis(array.val, place, 0)
    return array


def first_of(said: Any) -> Any:
    return said[0] if isinstance(said, tuple | list) else said


class KerasLayer(PureLayer):
    """A layer of Keras, whose weights are written in place."""

    def __init__(self, layer: Any) -> None:
        names = names_of_weights(layer)
        leaves = {names[weight.path]: weight for weight in layer.weights}
        super().__init__(leaves, lambda leaves: self.now[-1], layer.call)
        self.never_called = [name for name, part in layers_of(layer) if WITH_MATRIX in vars(part) and not part.built]
        self.layer, self.now = layer, [in_numpy(taken_apart_once_built(layer))]
        """How it is called now, last: as it is, without its norms, or watching them."""
        self.norms = [one for one in layer._flatten_layers() if one is not layer and is_norm(one)]
        self.of_norms = {names[weight.path] for norm in self.norms for weight in norm.weights}

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self.applied({})(*positional, **named)

    @property
    def stateless(self) -> tuple[Callable[..., Any], Any]:
        """The layer as a function of its weights and of what it is given, in a row and by name; and these weights."""
        return stateless(self.layer), [one.value for one in self.layer.variables]

    def told(self, call: Callable[[], Any], given: Sequence[Any], theirs: Collection[str], instead: Any) -> Any:
        """Return the operations of a call and what it returns, also where PyTorch does them: in Keras's own type."""
        if not is_done_by_torch():
            return super().told(call, given, theirs, instead)
        function, own = self.stateless
        with self.called_by(partial(function, own)):
            return watched_in_torch(call, [one for one in given if one is not None], instead)

    @contextmanager
    def called_by(self, noting: Callable[[Any, Any], Any]) -> Iterator[None]:
        """Let somebody else make its calls."""
        self.now.append(lambda *positional, **named: noting(positional, named))
        try:
            yield
        finally:
            self.now.pop()

    @contextmanager
    def without_norms(self) -> Iterator[None]:
        """Let every norm inside hand on what it is given."""
        for norm in self.norms:
            vars(norm)["call"] = lambda inputs, *_, **__: inputs
        self.now.append(in_numpy(taken_apart_once_built(self.layer)))
        try:
            yield
        finally:
            self.now.pop()
            for norm in self.norms:
                del vars(norm)["call"]

    @contextmanager
    def watched(self) -> Iterator[list[Any]]:
        """Note what every norm inside is given and what it returns, in the order of the calls."""
        seen = list[Any]()

        def noting(norm: Any, call: Callable[..., Any]) -> Callable[..., Any]:
            def noted(inputs: Any, *others: Any, **named: Any) -> Any:
                said = call(inputs, *others, **named)
                seen.append((norm, inputs, said))
                return said

            return noted

        def with_norms(values: Any, positional: Any, named: Any) -> Any:
            seen.clear()
            said = stateless(self.layer)(values, positional, named)
            self.met = [norm for norm, *_ in seen]
            return said, [tuple(pair) for _, *pair in seen]

        found, is_traced = list[Any](), sys.modules["keras"].backend.backend() == "jax"
        whole = compiled(with_norms) if is_traced else with_norms

        def watching(*positional: Any, **named: Any) -> Any:
            said, pairs = whole([one.value for one in self.layer.variables], positional, named)
            found.extend((norm, *map(numbers, pair)) for norm, pair in zip(self.met, pairs, strict=True)
                         if not (is_traced and any(map(is_tracer, pair))))  # fmt: skip
            return said

        for norm in self.norms:
            vars(norm)["call"] = noting(norm, norm.call)
        self.now.append(in_numpy(watching) if self.norms else self.now[-1])
        try:
            yield found
        finally:
            self.now.pop()
            for norm in self.norms:
                del vars(norm)["call"]

    @property
    def parameters(self) -> Mapping[str, Array]:
        """Every weight, in float64."""
        return {name: numbers(weight) for name, weight in self.leaves.items() if name not in self.hidden}

    def put(self, values: Mapping[str, Array]) -> None:
        """Write numbers into weights."""
        for name, array in values.items():
            self.leaves[name].assign(np.asarray(array, np.float32).reshape(self.leaves[name].shape))

    def lent(self, array: Array) -> Any:
        """Return an array in the type of the layer, or as a tensor that it turns into that."""
        return sys.modules["torch"].from_numpy(np.array(array)) if is_done_by_torch() else np.asarray(array, np.float32)

    def answer(self, way: Any, x: Array, memory: Array | None) -> Array:
        """Return the answer of a call as NumPy has it."""
        x, memory = self.lent(x), None if memory is None else self.lent(memory)
        return numbers(first_of(way.call(self, x, memory)))


def names_of_weights(layer: Any) -> dict[str, str]:
    """Return the name of each weight of a layer of Keras, by its path: that, or the attributes that lead to it.

    A path may tell the class alone, as in `attention/dense_1/kernel`; attributes tell what their author calls it.
    """
    found = dict[str, str]()
    for said, one in [*layers_of(layer), ("", layer)]:
        for name, part in parts_below(held_by(one), f"{said}/" if said else ""):
            if hasattr(part, "assign") and hasattr(part, "path"):
                found.setdefault(part.path, name)
        for weight in one.weights if said else ():
            found.setdefault(weight.path, f"{said}/{weight.path.rsplit('/', 1)[-1]}")
    paths = [weight.path for weight in layer.weights]
    names = {path: path if sounds_like(path) else found.get(path, path) for path in paths}
    return names if len(set(names.values())) == len(names) else {path: path for path in names}


def held_by(layer: Any) -> dict[str, Any]:
    """Return the attributes of a layer of Keras that its author named."""
    held = vars(layer).get("_modules", {})  # where PyTorch computes, its modules are kept there
    return {name: value for name, value in {**vars(layer), **held}.items() if not name.startswith("_")}


def layers_of(layer: Any, said: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the layers inside one of Keras, the innermost first, by the attributes that lead to them."""
    for name, part in parts_below(held_by(layer), f"{said}/" if said else ""):
        if hasattr(part, "_flatten_layers") and name.count("/") < DEEPEST:
            yield from layers_of(part, name)
            yield name, part


WITH_MATRIX = "kernel_initializer"
"""What a layer of Keras keeps that has a matrix, also before it has it."""


def parts_below(values: Mapping[str, Any], said: str) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of all attributes, and of what lists and mappings among them hold."""
    for name, value in values.items():
        if isinstance(value, list | tuple):
            yield from ((f"{said}{name}/{place}", part) for place, part in enumerate(value))
        elif isinstance(value, Mapping):
            yield from ((f"{said}{name}/{key}", part) for key, part in value.items())
        else:
            yield f"{said}{name}", value


DEEPEST = 6
"""How deep layers lie in each other at most, as some hold the one that holds them."""


def is_norm(layer: Any) -> bool:
    """Say whether a layer of Keras is a norm: by its name, and it holds no matrix."""
    return "norm" in type(layer).__name__.lower() and all(len(weight.shape) < 2 for weight in layer.weights)


def numbers(tensor: Any) -> Array:
    """Return a tensor of Keras in NumPy, whatever computes it."""
    plain: Array = np.asarray(sys.modules["keras"].ops.convert_to_numpy(tensor), np.float64)
    return plain


def is_done_by_torch() -> bool:
    """Say whether it is PyTorch with which Keras computes."""
    return bool(sys.modules["keras"].backend.backend() == "torch")


def in_numpy(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Return a layer of Keras that answers with arrays of NumPy, whatever computes it."""

    def plain(said: Any) -> Any:
        if isinstance(said, tuple | list):
            return tuple(plain(part) for part in said)
        return sys.modules["keras"].ops.convert_to_numpy(said) if hasattr(said, "shape") else said

    return lambda *positional, **named: plain(layer(*positional, **named))


def stateless(layer: Any) -> Callable[[Any, Any, Any], Any]:
    """Return a layer of Keras as a function of its weights and of what it is given."""

    def call(values: Any, positional: Any, named: Any) -> Any:
        with sys.modules["keras"].StatelessScope(state_mapping=list(zip(layer.variables, values, strict=True))):
            return layer(*positional, **named)

    return call


def taken_apart_once_built(layer: Any) -> Callable[..., Any]:
    """Return a layer of Keras that is done in NumPy where JAX computes it, as soon as it has all its weights."""
    keras = sys.modules["keras"]
    whole, known = compiled(stateless(layer)), set[str]()

    def is_built(positional: Any, named: Any) -> bool:
        """Say whether all is made that such a call needs; parts that it never calls are never built."""
        if all(one.built for one in layer._flatten_layers()):
            return True
        key = repr(of_arrays(layer, (positional, named))[-1])
        if key not in known and not built(layer, positional, named):
            return False
        known.add(key)
        return True

    def call(*positional: Any, **named: Any) -> Any:
        with errors_as_they_are(keras.config), without_logs():
            if keras.backend.backend() != "jax" or not is_built(list(positional), named):
                return layer(*positional, **named)
            return whole([one.value for one in layer.variables], positional, named)

    return call


@contextmanager
def errors_as_they_are(config: Any) -> Iterator[None]:
    """Let Keras, whose settings are `config`, hand on errors as they are: it cannot make those of JAX anew."""
    filters = config.is_traceback_filtering_enabled()
    config.disable_traceback_filtering()
    try:
        yield
    finally:
        if filters:
            config.enable_traceback_filtering()


def as_called(made: Any) -> Any:
    """Return an object of a class as what is called: a layer of Keras with its own signature, which Keras hides."""
    if inspect.isclass(made) or kind_of(made) != "keras":
        return made
    layer, signature = in_numpy(taken_apart_once_built(made)), inspect.signature(made.call)
    parameters = [one.replace(name="key_mask") if one.name == "mask" else one for one in signature.parameters.values()]
    signature = signature.replace(parameters=parameters)

    def called(*positional: Any, **named: Any) -> Any:
        given = signature.bind(*positional, **named).arguments
        inputs, mask = next(iter(given.values())), given.pop("key_mask", None)
        if mask is not None and isinstance(inputs, list):  # one for each input, that of the queries first
            given["mask"] = [None, *[mask] * (len(inputs) - 1)]
        elif mask is not None:
            given["mask"] = mask
        return layer(**given)

    vars(called)["__signature__"] = signature
    return called


# From what a class makes to a layer with parameters


def pure(kind: str, made: Any, example: Callable[[Callable[..., Any]], Any]) -> PureLayer:
    """Return what a class made as a layer; `example` calls a function as the layer is to be called, and returns what
    that says, so that those that have no parameters before a call get them."""
    makers = {
        "linen": of_linen,
        "nnx": of_nnx,
        "haiku": of_haiku,
        "equinox": of_equinox,
        "keras": of_keras,
        "pair": of_pair,
    }
    layer = makers[kind](made, example)
    layer.module = made
    return layer


def of_linen(made: Any, example: Callable[[Callable[..., Any]], Any]) -> PureLayer:
    """Return a module of flax.linen as a layer: a first call, made by `example`, gives it its parameters."""
    import jax  # noqa: PLC0415

    found = dict[str, Any]()
    start = compiled(lambda given, named: made.init_with_output(jax.random.PRNGKey(0), *given, **named))

    def initial(*positional: Any, **named: Any) -> Any:
        said, variables = start(positional, named)
        found.update(variables)
        return said

    vars(initial)["module"] = made  # its file may say how many tokens it takes
    example(initial)
    leaves, shape = flattened(found.get("params", {}))
    others = {name: value for name, value in found.items() if name not in ("params", "cache")}
    keys = {"dropout": jax.random.PRNGKey(1)}  # who drops weights in evaluation too needs one

    def applied(now: Mapping[str, Any]) -> Callable[..., Any]:
        variables = {"params": shape([now[name] for name in leaves]), **others}
        return lambda *positional, **named: made.apply(variables, *positional, rngs=keys, **named)

    met = met_by(sys.modules["flax.linen"].intercept_methods, lambda module: "/".join(module.path))
    return PureLayer(leaves, applied, made.__call__, meeting=met, never_called=list(never_called(made, found, leaves)))


def never_called(made: Any, variables: Mapping[str, Any], leaves: Collection[str]) -> Iterator[str]:
    """Yield the names of what a module of flax.linen makes as it is set up, and of which it has no numbers."""
    bound = made.bind(variables)
    with suppress(Exception):
        getattr(bound, "name_that_it_has_not", None)  # which sets it up
        for name, part in vars(bound).items():
            if hasattr(part, "kernel_init") and not any(leaf.startswith(f"{name}/") for leaf in leaves):
                yield name


def of_pair(made: Pair, example: Callable[[Callable[..., Any]], Any]) -> PureLayer:
    """Return two functions as a layer: the first makes parameters in a first call of the second."""
    import jax  # noqa: PLC0415

    found = dict[str, Any]()

    def initial(*positional: Any, **named: Any) -> Any:
        given = next(iter((*positional, *named.values())), None)
        shape = jax.tree_util.tree_map(np.shape, given)
        needed = [one for one in inspect.signature(made.init).parameters.values() if one.default is one.empty]
        said = made.init(*(jax.random.PRNGKey(0), shape)[: len(needed)])
        with_shape = isinstance(said, tuple) and len(said) == len("sp") and is_shape(said[0])
        found["params"] = said[1] if with_shape else said
        return made.apply(found["params"], *positional, **named)

    example(initial)
    leaves, whole = flattened(found["params"])

    def applied(now: Mapping[str, Any]) -> Callable[..., Any]:
        return partial(made.apply, whole([now[name] for name in leaves]))

    return PureLayer(leaves, applied, without_self(made.apply))


def is_shape(said: Any) -> bool:
    """Say whether something is the shape of an array."""
    return isinstance(said, tuple) and all(isinstance(length, int) for length in said)


def of_haiku(made: Any, example: Callable[[Callable[..., Any]], Any]) -> PureLayer:
    """Return what makes a module of haiku as a layer: a first call, made by `example`, gives it its parameters."""
    import jax  # noqa: PLC0415

    found, inside = dict[str, Any](), dict[str, Any]()

    def called(positional: Any, named: Any) -> Any:
        module = made()
        inside.update(vars(module))
        return module(*positional, **named)

    pair = sys.modules["haiku"].transform(called)
    start = compiled(lambda given, named: pair.init(jax.random.PRNGKey(0), given, named))
    once = compiled(lambda params, given, named: pair.apply(params, jax.random.PRNGKey(1), given, named))

    def initial(*positional: Any, **named: Any) -> Any:
        found["params"] = start(positional, named)
        return once(found["params"], positional, named)

    example(initial)
    leaves, shape = flattened(found["params"])

    def applied(now: Mapping[str, Any]) -> Callable[..., Any]:
        params = shape([now[name] for name in leaves])
        return lambda *positional, **named: pair.apply(params, jax.random.PRNGKey(1), positional, named)

    met = met_by(sys.modules["haiku"].intercept_methods, lambda module: str(module.module_name))
    idle = [name for name, part in inside.items() if hasattr(part, "w_init") and not any(
        leaf.startswith(f"{part.module_name}/") for leaf in leaves
    )]  # fmt: skip
    return PureLayer(leaves, applied, made.forward, meeting=met, never_called=idle)


@dataclass
class HaikuMaker:
    """A class of haiku with what it is to be made of, which can be done inside a transformed function alone."""

    kind: Any
    said: Mapping[str, Any]

    def __call__(self) -> Any:
        return self.kind(**self.said)

    @property
    def forward(self) -> Callable[..., Any]:
        """What says which arguments a call takes."""
        return without_self(self.kind.__call__)


def without_self(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that says it takes what a method takes of its object."""
    signature = inspect.signature(function)

    def stand_in(*positional: Any, **named: Any) -> Any:
        raise AssertionError((positional, named))

    stand_in.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=list(signature.parameters.values())[1:]
    )
    return stand_in


def of_equinox(made: Any, example: Callable[[Callable[..., Any]], Any]) -> PureLayer:
    """Return a module of Equinox as a layer: its parameters are the leaves of its tree that are floats."""
    import jax  # noqa: PLC0415

    pairs, tree = jax.tree_util.tree_flatten_with_path(made)
    named = {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in pairs}
    leaves = {name: leaf for name, leaf in named.items() if hasattr(leaf, "dtype") and leaf.dtype.kind == "f"}

    def applied(now: Mapping[str, Any]) -> Callable[..., Any]:
        whole = jax.tree_util.tree_unflatten(tree, [now.get(name, leaf) for name, leaf in named.items()])
        inference = getattr(sys.modules.get("equinox"), "nn", None)
        whole = inference.inference_mode(whole) if inference is not None else whole
        called: Callable[..., Any] = whole
        return called

    return with_norms_of_classes(PureLayer(dict(leaves), applied, made.__call__), made, jax.tree_util.keystr)


def with_norms_of_classes(layer: PureLayer, made: Any, name_of: Callable[[Any], str]) -> PureLayer:
    """Return a layer of Equinox whose norms are met where their classes are called."""
    import jax  # noqa: PLC0415

    def is_one(part: Any) -> bool:
        return is_part_norm(part, made)

    pairs, _ = jax.tree_util.tree_flatten_with_path(made, is_one)
    return meeting_norms(layer, {name_of(path).lstrip("."): part for path, part in pairs if is_one(part)}, ".")


def is_part_norm(part: Any, made: Any) -> bool:
    """Say whether something inside a layer has the name of a norm, and can be called."""
    return part is not made and callable(part) and "norm" in type(part).__name__.lower()


def meeting_norms(layer: PureLayer, parts: Mapping[str, Any], sign: str) -> PureLayer:
    """Return a layer whose norms, by their path, are met where their classes are called; `sign` parts the words."""
    inside = {path: {name for name in layer.leaves if name.startswith(f"{path}{sign}")} for path in parts}
    plain = {path for path, names in inside.items() if all(np.ndim(layer.leaves[name]) < 2 for name in names)}
    layer.of_norms |= {name for path in plain for name in inside[path]}
    layer.meeting = partial(met_in_classes, {type(part) for path, part in parts.items() if path in plain})
    return layer


@contextmanager
def met_in_classes(classes: Iterable[Any], handle: Handle) -> Iterator[None]:
    """Let calls of objects of some classes be done by somebody else meanwhile."""

    def standing_in(before: Callable[..., Any]) -> Callable[..., Any]:
        def called(self: Any, given: Any, *others: Any, **named: Any) -> Any:
            return handle("", self, given, lambda: before(self, given, *others, **named))

        return called

    known = {kind: kind.__call__ for kind in classes}
    for kind, before in known.items():
        kind.__call__ = standing_in(before)
    try:
        yield
    finally:
        for kind, before in known.items():
            kind.__call__ = before


def of_nnx(made: Any, example: Callable[[Callable[..., Any]], Any]) -> PureLayer:
    """Return a module of flax.nnx as a layer: its graph and its state apart."""
    import jax  # noqa: PLC0415

    nnx = sys.modules["flax.nnx"]
    graph, params, rest = nnx.split(made, nnx.Param, ...)
    leaves, shape = flattened(params)

    def applied(now: Mapping[str, Any]) -> Callable[..., Any]:
        others = jax.tree_util.tree_map(lambda one: one, rest)  # made anew, as a call may count up what draws numbers
        merged = nnx.merge(graph, shape([now[name] for name in leaves]), others)
        merged.eval()
        called: Callable[..., Any] = merged
        return called

    layer = PureLayer(leaves, applied, made.__call__)
    parts = {"/".join(map(str, path)): part for path, part in nnx.iter_graph(made) if is_part_norm(part, made)}
    return meeting_norms(layer, parts, "/")


def of_keras(made: Any, example: Callable[[Callable[..., Any]], Any]) -> PureLayer:
    """Return a layer of Keras, which is built by a first call: `example` makes that."""
    call = taken_apart_once_built(made)
    vars(call)["module"] = made
    example(call)
    return KerasLayer(made)


def flattened(tree: Any) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """Return the arrays of a tree by the words of their path, and what makes the tree of others."""
    import jax  # noqa: PLC0415

    pairs, form = jax.tree_util.tree_flatten_with_path(tree)
    leaves = {
        "/".join(word_of(step) for step in path if word_of(step) != "value"): np.asarray(leaf) for path, leaf in pairs
    }
    return leaves, lambda now: jax.tree_util.tree_unflatten(form, now)


def word_of(step: Any) -> str:
    """Return one step of a path in a tree, as a word."""
    return str(next((getattr(step, name) for name in ("key", "name", "idx") if hasattr(step, name)), step))
