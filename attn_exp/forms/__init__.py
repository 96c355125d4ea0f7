"""How attention is computed: one file per form, each with a pure function `attend(q, k, v, rules) -> Trace`."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp import registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from attn_exp.forms.trace import Trace
    from attn_exp.rules.rules import Rules

NAMES: tuple[str, ...] = registry.names(__path__, without=("trace",))


def module(name: str) -> ModuleType:
    """Import the form of that name; a form that is not used costs nothing."""
    return importlib.import_module(f"{__name__}.{name}")


def attend(name: str) -> Callable[..., Trace]:
    """Return `attend(q, k, v, rules)` of the form of that name."""
    found: Callable[..., Trace] = module(name).attend
    return found


def keeping(name: str, weights: str, tell: Callable[[float], None] | None = None) -> Callable[..., Trace]:
    """Return the same function with what `weights` says is kept of them, where the form does not have them anyway.

    `full` asks for the form's `complete`, `auto` and `blocks` for its `summarize`; both tell how far they are.
    """
    form = module(name)
    found = getattr(form, "complete" if weights == "full" else "summarize", None)
    return attend(name) if found is None else functools.partial(found, tell=tell)


def matrices(name: str) -> int:
    """Return how many arrays `[h t s]` the form holds at once: all five stages unless it says otherwise."""
    return getattr(module(name), "MATRICES", 5)


def library(name: str) -> str | None:
    """Return the name of the library that computes the form, or None where that is NumPy or Python itself."""
    return getattr(module(name), "LIBRARY", None)


def computed_in(name: str, given: Any = np.float64) -> np.dtype[Any]:
    """Return the type that the form computes numbers of a given type in: theirs, or its `DTYPE` where that is coarser.

    Units in the last place, and whether two answers differ by rounding alone, are judged in this type.
    """
    own, widest = np.dtype(given), getattr(module(name), "DTYPE", None)
    return own if widest is None else coarser(own, np.dtype(widest))


def coarser(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    """Return the one of two types of numbers that has fewer digits."""
    return one if one.itemsize <= other.itemsize else other


def refuses(name: str, rules: Rules) -> str | None:
    """Return why the form of that name cannot compute these rules, in one line, or None where it can.

    A form says so in a function `refuses(rules)` of its own; one without it computes everything.
    """
    if rules.bend_last and rules.scores and not hasattr(module(name), "BENDS_LAST"):
        return f"form={name} bends logits before masking them alone"
    judge: Callable[[Rules], str | None] | None = getattr(module(name), "refuses", None)
    return None if judge is None else judge(rules)


def reference(name: str) -> str:
    """Return which function of the reference the form computes: a normalizer of logits unless it says otherwise."""
    return getattr(module(name), "REFERENCE", "logits")
