"""Words for masks that a function takes and never reads: one beside it may be the word that counts."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Collection, Sequence
from types import CodeType
from typing import Any

from attn_exp.diagnosis.code.source import codes_in

OF_MASKS = ("mask", "padding", "causal")
PROTOCOL = "mask"
"""What layers of Keras are handed where an embedding knows which tokens are filler: many take it for that alone."""

HINT = "is_causal"
"""What `torch.nn.MultiheadAttention` takes beside its mask, which it must be given all the same: a hint to be fast."""


def set_aside(
    function: Any, parameters: Sequence[inspect.Parameter], role_of: Callable[[str], str]
) -> list[inspect.Parameter]:  # fmt: skip
    """Return the parameters that are words for masks which the code of a function never reads, and need not.

    There is another such word that it reads, or it has the word because layers of Keras or PyTorch have it. A word that
    is handed on counts as read; what a function takes as its only word for a mask is asked, whatever becomes of it.
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
    """Return which parameters of a function its code never reads, nor any function within it; none of a class."""
    inner = inspect.unwrap(getattr(function, "__func__", function)) if inspect.isroutine(function) else None
    code = getattr(inner, "__code__", None)
    if code is None or "locals" in code.co_names:
        return set()
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {word for word in words if word in own} - names_loaded(code)


def names_loaded(code: CodeType) -> set[str]:
    """Return the names of variables that code loads, also two at once, and the code within it."""
    found = set[str]()
    for step in (step for one in codes_in(code) for step in dis.get_instructions(one)):
        if step.opname.startswith("LOAD_") or "_LOAD_" in step.opname:
            found |= set(step.argval) if isinstance(step.argval, tuple) else {str(step.argval)}
    return found


def is_of_keras(function: Any) -> bool:
    """Say whether a function is what a layer of Keras does when it is called."""
    kinds = type(getattr(function, "__self__", None)).__mro__
    return any(kind.__module__.partition(".")[0] in ("keras", "tf_keras", "tensorflow") for kind in kinds)
