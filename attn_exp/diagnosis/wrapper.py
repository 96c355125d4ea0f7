"""A wrapper for a function or a layer that cannot be called as it is: what is known is filled in, the rest is dots."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from attn_exp.diagnosis.module_sizes import Sizes
from attn_exp.diagnosis.neutral import is_known, sources_of
from attn_exp.diagnosis.offer import is_required, parameters_of
from attn_exp.diagnosis.sides import side_of_name
from attn_exp.diagnosis.told_sizes import MADE_WITH, SIZE, is_module
from attn_exp.errors import UserError
from attn_exp.own_code import OwnFunction

HINT = "# complete the dots, save this as wrapper.py beside it, and: attn-exp check wrapper.py:{}"
PLAIN = ("None", "False", "True", "0", "1", "0.0", "1.0", "''", "{}", "-1")
"""Values that stand in a wrapper as they are."""


def wrapper_of(own: OwnFunction) -> str:
    """Return Python that makes a function of q, k and v of another, or a layer of x of another, to be completed.

    Nothing where it has no name.
    """
    place, _, name = own.target.rpartition(":")
    module = Path(place).stem if place.endswith(".py") else place
    if not module.replace(".", "").isidentifier():
        return ""
    first = name.partition(".")[0]
    if is_module(own.function):
        return "\n".join(of_layer(own, name, [f"from {module} import {first}"]))
    lines = [HINT.format("attention"), f"from {module} import {first}", ""]
    called = name
    try:
        parameters = parameters_of(own.function, own.name)
        if inspect.isclass(own.function):
            lines += [f"made = {name}({', '.join(value_of(given) for given in parameters if is_required(given))})", ""]
            called = "made"
            inner: Any = getattr(own.function, "forward", None) or own.function.__call__
            parameters = parameters_of(inner, own.name)[1:]
    except UserError:
        return ""
    arrays = iter("qkv")
    given = [value_of(one, next(arrays, "") if not is_known(one.name) or side_of_name(one.name) else "")
             for one in parameters if is_required(one)]  # fmt: skip
    lines += ["", "def attention(q, k, v):", f"    return {called}({', '.join(given)})"]
    return "\n".join(lines)


def of_layer(own: OwnFunction, name: str, imported: list[str]) -> list[str]:
    """Return the lines that let a layer be called with x alone; where it is a class, they make it as well."""
    made = inspect.isclass(own.function)
    base = name if made else f"type({name})"
    method = next(word for word in ("forward", "call", "__call__") if hasattr(own.function, word))
    forward = [given for given in parameters_of(getattr(own.function, method), own.name) if given.name != "self"]
    others = "".join(f", {given.name}=..." for given in forward[1:] if is_required(given))
    lines = [HINT.format("layer"), *imported, "", "", f"class Mine({base}):", f"    def {method}(self, x):"]
    lines += [f"        return super().{method}(x{others})", "", ""]
    if not made:
        return [*lines, f"layer = {name}", "layer.__class__ = Mine"]
    sizes = Sizes(SIZE * MADE_WITH, MADE_WITH, SIZE, MADE_WITH)
    needed = [given for given in parameters_of(own.function, own.name) if is_required(given)]
    values = [f"{given.name}={'...' if (size := sizes.value(given.name)) is None else size}" for given in needed]
    return [*lines, f"layer = Mine({', '.join(values)})"]


def value_of(given: inspect.Parameter, array: str = "") -> str:
    """Return what a parameter is given, with its name: one of the arrays, what its name says, or dots."""
    side = side_of_name(given.name)
    known = side if side in ("q", "k", "v") else "concatenate([q, k, v], -1)" if side == "qkv" else array
    if not known and is_known(given.name):
        text = sources_of(given)[0].text
        known = text if text in PLAIN or text.startswith(("q.", "k.", "len(")) else ""
    value = known or "..."
    return value if given.kind is given.POSITIONAL_ONLY else f"{given.name}={value}"
