"""How attention is computed: one file per form, each with a pure function `attend(q, k, v, rules) -> Trace`."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from attn_exp.stages import Trace

NAMES: tuple[str, ...] = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def module(name: str) -> ModuleType:
    """Import the form of that name; a form that is not used costs nothing."""
    return importlib.import_module(f"{__name__}.{name}")


def attend(name: str) -> Callable[..., Trace]:
    """Return `attend(q, k, v, rules)` of the form of that name."""
    found: Callable[..., Trace] = module(name).attend
    return found
