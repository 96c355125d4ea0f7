"""Functions that make a layer of sizes, as `def attention(width, heads)` with a model of Keras inside: stand-ins."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import MethodType
from typing import Any

from attn_exp.diagnosis.asking.offer import BY_NAME, is_required, is_starred, offered, parameters_of, plain
from attn_exp.diagnosis.asking.sides import biases_of, side_of_name
from attn_exp.diagnosis.asking.uses import uses_of
from attn_exp.diagnosis.calling import mappings
from attn_exp.diagnosis.code.libraries import homes_of
from attn_exp.diagnosis.code.source import names_in
from attn_exp.diagnosis.making.constructing import construct
from attn_exp.diagnosis.matrices.module_sizes import Sizes
from attn_exp.diagnosis.matrices.plain_layers import METHODS, arrays_in, matrices_in, may_be_layer, method_of
from attn_exp.diagnosis.matrices.pure_layers import Pair, kind_of
from attn_exp.errors import UncalledError, UserError
from attn_exp.own_code import LeftError


def class_of(function: Any, name: str, sizes: Sizes, is_layer: Callable[[Any], bool]) -> Any:
    """Return a class whose objects are the layers that a function makes; None of a function that takes arrays.

    A function counts as such where its names do not say that it takes q, k and v, or x, and it returns a layer.
    """
    if not inspect.isfunction(function) or not may_make(function, name):
        return None
    try:
        made = construct(function, name, sizes, lambda one, _: one)
    except (Exception, LeftError):
        return None
    if is_pair(made):
        return standing_for(function, Pair, lambda said: Pair(*said[:2]))
    return standing_for(function, type(made)) if is_layer(made) and not inspect.isclass(made) else None


def class_around(function: Any) -> Any:
    """Return a class of layers that do what a function does which makes layers of haiku or Keras each time; or None.

    Its class is made of the numbers that the function takes, and called with all else. One of Keras that takes q, k and
    v, or a layer's matrices, is called as it stands; haiku makes layers inside of what it transforms alone.
    """
    code = getattr(function, "__code__", None)
    names = set(names_in(code)) if code is not None else set[str]()
    space = getattr(function, "__globals__", {})
    homes = homes_of(space.get(name) for name in names)
    if not inspect.isfunction(function) or "self" in inspect.signature(function).parameters:
        return None
    haiku = vars(sys.modules["haiku"]) if "haiku" in homes and "haiku" in sys.modules else {}
    if any(inspect.isclass(haiku.get(name)) for name in names) and "transform" not in names:
        return of_haiku(function)
    with suppress(UserError):
        offered(function, "")
        return None
    if haiku:
        return of_haiku(function)
    layers = vars(sys.modules["keras"].layers) if "keras" in homes and "keras" in sys.modules else {}
    if all(is_number(one) for one in inspect.signature(function).parameters.values() if one.default is one.empty):
        return None  # it makes a layer, and takes no x
    return of_keras(function) if any(inspect.isclass(layers.get(name)) for name in names) else None


def numbers_apart(function: Any) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    """Return which parameters of a function count something, and all others, of which the first is x."""
    first, *rest = inspect.signature(function).parameters.values()
    numbers = [one.replace(kind=one.KEYWORD_ONLY) for one in rest if is_number(one)]
    return numbers, [first, *(one for one in rest if not is_number(one))]


def is_number(one: inspect.Parameter) -> bool:
    """Say whether a parameter counts something."""
    is_array = BY_NAME.get(plain(one.name)) in ("x", "q", "k", "v", "mask", "padding")
    known = Sizes(8, 2, 4, 2).value(one.name) is not None and not is_array
    return known or "int" in str(one.annotation) or type(one.default) in (int, float)


def of_haiku(function: Any) -> Any:
    """Return a class of haiku that does what a function does."""
    numbers, others = numbers_apart(function)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)

    def init(self: Any, **said: Any) -> None:
        sys.modules["haiku"].Module.__init__(self)
        self.said = said

    def call(self: Any, *given: Any, **named: Any) -> Any:
        return function(**dict(zip([one.name for one in others], given, strict=False)), **named, **self.said)

    vars(init)["__signature__"] = inspect.Signature([own, *numbers])
    vars(call)["__signature__"] = inspect.Signature([own, *others])
    space = {"__init__": init, "__call__": call, "__module__": function.__module__, "owner": function}
    return type(function.__name__, (sys.modules["haiku"].Module,), space)


def of_keras(function: Any) -> Any:
    """Return a class of graphs of Keras that do what a function does with its first arguments."""
    keras = sys.modules["keras"]
    numbers, others = numbers_apart(function)
    inputs = [one.name for one in others if one.default is one.empty]

    def graph(*, d_model: int, **said: Any) -> Any:
        given = {name: keras.Input((None, d_model), name=name) for name in inputs}
        made = function(**given, **said)
        return keras.Model(list(given.values()) if len(given) > 1 else next(iter(given.values())), made)

    width = inspect.Parameter("d_model", inspect.Parameter.KEYWORD_ONLY)
    numbers = [one for one in numbers if one.name != width.name]
    vars(graph)["__signature__"] = inspect.Signature([width, *numbers])
    graph.__module__, graph.__name__ = function.__module__, function.__name__
    return standing_for(graph, keras.Model)


def is_pair(made: Any) -> bool:
    """Say whether something is two functions of JAX, of which one makes parameters and the other one applies them."""
    if "jax" not in sys.modules or not isinstance(made, tuple) or len(made) < len("ia"):
        return False
    named = [inspect.signature(one).parameters if inspect.isroutine(one) else {} for one in made[:2]]
    return all(named) and len(named[1]) > 1


def in_one_call(kind: Any) -> Callable[..., Any] | None:
    """Return a class whose objects are made of q, k and v, or of matrices, as one function of these and of what its
    objects are called with; None of other classes."""
    word = next((word for word in METHODS if inspect.isfunction(getattr(kind, word, None))), "")
    if not word or not inspect.isfunction(getattr(kind, "__init__", None)):
        return None
    made_of, taken = ([*inspect.signature(getattr(kind, name)).parameters.values()][1:] for name in ("__init__", word))
    names = [given.name for given in made_of]
    matrices = [name for name in names if side_of_name(name).startswith("W_") and name not in biases_of(names)]
    if not (matrices or is_made_of_heads(kind)) or any(
        given.name in names or is_starred(given) for given in (*made_of, *taken)[len(made_of) :]
    ):
        return None

    def joint(**given: Any) -> Any:
        made = kind(**{name: given.pop(name) for name in names if name in given})
        return getattr(made, word)(**given)

    parameters = [given.replace(kind=inspect.Parameter.KEYWORD_ONLY) for given in (*made_of, *taken)]
    vars(joint)["__signature__"] = inspect.Signature(parameters)
    return joint


def is_made_of_heads(kind: Any) -> bool:
    """Say whether a class needs q, k and v, by their names, where its objects are made."""
    with suppress(TypeError, ValueError):  # of a class of C, nothing may be said
        given = inspect.signature(kind).parameters.values()
        return {"q", "k", "v"} <= {BY_NAME.get(plain(one.name), "") for one in given if is_required(one)}
    return False


def may_make(function: Any, name: str) -> bool:
    """Say whether a function takes sizes, at least by what is known of its names."""
    try:
        offered(function, name)
    except UserError:
        return True
    return False


def standing_for(function: Any, kind: Any, layer_of: Callable[[Any], Any] = lambda said: said) -> Any:
    """Return a class that is made as a function makes its layers, and looks like one of theirs.

    `layer_of` makes a layer of what the function returns.
    """

    def init(self: Any, *given: Any, **named: Any) -> None:
        """Do nothing: the function made the layer."""

    def new(cls: Any, *given: Any, **named: Any) -> Any:
        return layer_of(function(*given, **named))

    signature = inspect.signature(function)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    functools.update_wrapper(init, function)
    vars(init)["__signature__"] = signature.replace(parameters=[own, *signature.parameters.values()])
    space = {"__new__": new, "__init__": init, "__signature__": signature, "__module__": function.__module__,
             "__doc__": function.__doc__, "owner": function}  # fmt: skip
    return type(function.__name__, (kind,), space)


def called_by_method(function: Any, sizes: Sizes) -> Any:
    """Return the class of a method, made to be called by it, as `Block.attention` names one; all else as it is.

    Of those that PyTorch, Keras or Python alone make: their objects are called by the method of a known name. A method
    of an object, as of `layer = Block(8)`, gives the object made so, unless its arguments are called q, k and v.
    A class whose objects are made of q, k and v is a function of these.

    Raises:
        UncalledError: a class keeps q, k and v, and has no method that could answer.
    """
    if inspect.isclass(function) and not kind_of(function) and is_made_of_heads(function):
        if not (method_of(function) or any(inspect.isfunction(getattr(function, word, None)) for word in METHODS)):
            said = f"{function.__name__} is made of q, k and v, and has no method that answers, such as forward"
            raise UncalledError(said)
        return in_one_call(function) or function
    if inspect.ismethod(function):
        return object_called_by(function)
    if is_named_by_method(function):
        return getattr(function, method_of(type(function)))
    home, _, word = str(getattr(function, "__qualname__", "")).rpartition(".")
    owner = getattr(function, "__globals__", {}).get(home)
    if not inspect.isclass(owner) or inspect.getattr_static(owner, word, None) is not function:
        return function
    library = kind_of(owner)
    if library not in ("", "keras") or next(iter(inspect.signature(function).parameters), "") != "self":
        return function
    kind = None if library else given_its_matrices(owner, function, sizes)
    return kind or made_for_method(owner, function, sizes)


def made_for_method(owner: type, function: Any, sizes: Sizes) -> Any:
    """Return a class made to be called by one of its methods, or the method where it takes q, k and v."""
    library, word = kind_of(owner), function.__name__
    space: dict[str, Any] = {"call" if library else "forward": function, "__module__": owner.__module__}
    is_core = not library and takes_heads(MethodType(function, owner))
    made = made_without_reading(owner, word, sizes) if is_core else None
    if made is not None:  # it is a function of q, k and v
        if not hasattr(made, "named_parameters"):
            return MethodType(function, made)
        space["parameters"] = no_parameters
    return type(owner.__name__, (owner,), space)


def is_named_by_method(one: Any) -> bool:
    """Say whether an object of somebody's own cannot be called, and has a method of q, k and v that does it."""
    is_object = not callable(one) and not hasattr(one, "__array__") and may_be_layer(one)
    return is_object and takes_heads(getattr(one, method_of(type(one)))) and not matrices_in(one)


def object_called_by(method: Any) -> Any:
    """Return the object of a method, made to be called by it, or the method where it takes q, k and v."""
    owner, one = type(method.__self__), method.__self__
    if inspect.isclass(one) or kind_of(one) or owner.__module__ in ("builtins", "numpy") or takes_heads(method):
        return method
    with suppress(Exception):  # it may be frozen, or made in a way of its own
        made = copy.copy(one)
        made.__class__ = type(owner.__name__, (owner,), {"forward": method.__func__, "__module__": owner.__module__})
        return made
    return method


def takes_heads(function: Any) -> bool:
    """Say whether the names of a function's arguments are those of q, k and v, whatever else it takes."""
    with suppress(UserError):
        return {"q", "k", "v"} <= {BY_NAME.get(plain(one.name), "") for one in parameters_of(function, "")} or (
            offered(function, "").core
        )
    return False


def made_without_reading(owner: type, word: str, sizes: Sizes) -> Any:
    """Return an object of a class of whose matrices a method, and those that it calls, read none; else None."""
    try:
        made = construct(owner, owner.__name__, sizes, lambda one, _: one)
    except (Exception, LeftError):
        return None
    if hasattr(made, "named_parameters"):
        matrices = [name for name, tensor in made.named_parameters() if tensor.ndim > 1]
    else:
        matrices = [name for name, _, array in arrays_in(made) if array.ndim > 1]
    return None if names_read(owner, word) & {name.partition(".")[0] for name in matrices} else made


def given_its_matrices(owner: type, function: Any, sizes: Sizes) -> Any:
    """Return the class of a method that takes a mapping of matrices, where numbers and words are all that it reads of
    its object; else None. Its objects hold these alone; arrays are drawn nowhere, as that may take seconds."""
    uses, taken = uses_of(function), list(inspect.signature(function).parameters.values())[1:]
    names = names_read(owner, function.__name__)
    if not any(is_required(one) and any(True for _ in mappings.sources(one.name, uses)) for one in taken):
        return None

    @functools.wraps(owner.__init__)  # type: ignore[misc] # of the class
    def init(self: Any, *positional: Any, **named: Any) -> None:
        drawn = partial(owner.__init__, self, *positional, **named)  # type: ignore[misc] # of the class
        if (jax := sys.modules.get("jax")) is None:
            drawn()
        else:
            with ThreadPoolExecutor(1) as alone:  # what JAX is told of its own calls is told to one thread
                alone.submit(jax.eval_shape, drawn).result()
        for name in set(vars(self)) - names:
            delattr(self, name)

    kind = type(owner.__name__, (owner,), {"forward": function, "__init__": init, "__module__": owner.__module__})
    try:
        made = construct(kind, owner.__name__, sizes, lambda one, _: one)
    except (Exception, LeftError):
        return None
    return kind if all(isinstance(value, int | float | str | None) for value in vars(made).values()) else None


def names_read(owner: type, word: str) -> set[str]:
    """Return the names that a method of a class reads, and those that its own methods read that it calls."""
    names, ahead = set[str](), [word]
    while ahead:
        method = getattr(owner, ahead.pop(), None)
        new = set(method.__code__.co_names) - names if inspect.isfunction(method) else set[str]()
        names |= new
        ahead += new
    return names


def no_parameters(*_: Any, **__: Any) -> Iterator[Any]:
    """Yield nothing: what a method does not read is none of it."""
    yield from ()
