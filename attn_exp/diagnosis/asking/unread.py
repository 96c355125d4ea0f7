"""Mask parameters that a function takes but never reads: another parameter may be the real mask."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Collection, Sequence
from types import CodeType
from typing import Any

from attn_exp.diagnosis.code.source import codes_in

OF_MASKS = ("mask", "padding", "causal")
PROTOCOL = "mask"
"""The keyword by which Keras passes the mask of an embedding to a layer: many layers accept it only for that."""

HINT = "is_causal"
"""An optimization hint of `torch.nn.MultiheadAttention`, which requires the mask all the same."""


def set_aside(
    function: Any, parameters: Sequence[inspect.Parameter], role_of: Callable[[str], str]
) -> list[inspect.Parameter]:  # fmt: skip
    """Return the mask parameters that the code of a function never reads and that a call can omit.

    The function must read another mask parameter, or have this one by a convention of Keras or PyTorch. A parameter
    that is passed on counts as read; otherwise a function's only mask parameter is always tested.
    """
    words = {one.name: role for one in parameters if (role := role_of(one.name)) in OF_MASKS}
    lost = never_read(function, words) if words else set()
    read = set(words) - lost
    roles, named = {words[word] for word in read}, {one.name for one in parameters}

    def is_aside(one: inspect.Parameter) -> bool:
        if one.name not in lost or one.default is one.empty:
            return False
        if words[one.name] == "causal":
            return one.name == HINT and "mask" in roles and "need_weights" in named
        of_protocol = one.name == PROTOCOL and is_of_keras(function)
        return of_protocol or words[one.name] in roles or (bool(read) and words[one.name] == "mask")

    return [one for one in parameters if is_aside(one)]


def never_read(function: Any, words: Collection[str]) -> set[str]:
    """Return which parameters a function, with its nested functions, never reads; none for a class."""
    inner = inspect.unwrap(getattr(function, "__func__", function)) if inspect.isroutine(function) else None
    code = getattr(inner, "__code__", None)
    if code is None or "locals" in code.co_names:
        return set()
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {word for word in words if word in own} - names_loaded(code)


def names_loaded(code: CodeType) -> set[str]:
    """Return the names of variables that bytecode and its nested code load, also two in one instruction."""
    found = set[str]()
    for step in (step for one in codes_in(code) for step in dis.get_instructions(one)):
        if step.opname.startswith("LOAD_") or "_LOAD_" in step.opname:
            found |= set(step.argval) if isinstance(step.argval, tuple) else {str(step.argval)}
    return found


def is_of_keras(function: Any) -> bool:
    """Return whether a function is a method of a Keras layer."""
    kinds = type(getattr(function, "__self__", None)).__mro__
    return any(kind.__module__.partition(".")[0] in ("keras", "tf_keras", "tensorflow") for kind in kinds)
