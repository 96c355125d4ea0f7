"""Functions that make a layer of sizes, as `def attention(width, heads)` with a model of Keras inside: stand-ins."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from attn_exp.diagnosis.constructing import construct
from attn_exp.diagnosis.module_sizes import Sizes
from attn_exp.diagnosis.offer import offered
from attn_exp.diagnosis.pure_layers import kind_of
from attn_exp.errors import UserError
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
    return standing_for(function, type(made)) if is_layer(made) and not inspect.isclass(made) else None


def may_make(function: Any, name: str) -> bool:
    """Say whether a function takes sizes, at least by what is known of its names."""
    try:
        offered(function, name)
    except UserError:
        return True
    return False


def standing_for(function: Any, kind: Any) -> Any:
    """Return a class that is made as a function makes its layers, and looks like one of theirs."""

    def init(self: Any, *given: Any, **named: Any) -> None:
        """Do nothing: the function made the layer."""

    def new(cls: Any, *given: Any, **named: Any) -> Any:
        return function(*given, **named)

    signature = inspect.signature(function)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    functools.update_wrapper(init, function)
    vars(init)["__signature__"] = signature.replace(parameters=[own, *signature.parameters.values()])
    space = {"__new__": new, "__init__": init, "__signature__": signature, "__module__": function.__module__,
             "__doc__": function.__doc__, "owner": function}  # fmt: skip
    return type(function.__name__, (kind,), space)


def class_called_by(function: Any) -> Any:
    """Return the class of a method, made to be called by it, as `Block.attention` names one; all else as it is.

    Of those that PyTorch, Keras or Python alone make: their objects are called by the method of a known name.
    """
    home, _, word = str(getattr(function, "__qualname__", "")).rpartition(".")
    owner = getattr(function, "__globals__", {}).get(home)
    if not inspect.isclass(owner) or inspect.getattr_static(owner, word, None) is not function:
        return function
    library = kind_of(owner)
    if library not in ("", "keras") or next(iter(inspect.signature(function).parameters), "") != "self":
        return function
    return type(owner.__name__, (owner,), {"call" if library else "forward": function, "__module__": owner.__module__})
