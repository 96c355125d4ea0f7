"""What is computed: one file per mask or score rule, found by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attn_exp import registry
from attn_exp.config import UserError, unknown
from attn_exp.rules.rule import AnyOf, Mask, Rule, Score

NAMES: tuple[str, ...] = registry.names(__path__, without=("rule",))


def kind(name: str) -> type[Rule]:
    """Return the class of the rule of that name; it is imported when it is first asked for."""
    return registry.found(__name__, name, Rule)


def named(base: type[Rule]) -> tuple[str, ...]:
    """Return the names of every mask, or of every score rule."""
    return tuple(name for name in NAMES if issubclass(kind(name), base))


def make(base: type[Rule], name: str, settings: Any, key: str) -> Rule:
    """Return the mask or score rule of that name with its settings.

    Raises:
        UserError: no such rule, a rule of the other kind, or settings that it does not take.
    """
    if name not in NAMES:
        raise UserError(unknown(f"{key}.{name}", [f"{key}.{each}" for each in named(base)], "rule"))
    found = kind(name)
    if not issubclass(found, base):
        raise UserError(f"{key}.{name}: {name} is a {word(found)} rule; use {word(found)}={name}")
    return registry.make(found, settings, f"{key}.{name}")


def word(kind: type[Rule]) -> str:
    return "mask" if issubclass(kind, Mask) else "score"


def masks(given: Mapping[str, Any], join: str, blocks: bool = False) -> tuple[Mask, ...]:
    """Return the masks of a mapping from names to settings, joined by `and` (all must allow) or `or` (any may).

    With `blocks`, booleans that a user wrote are read as True = blocked.
    """
    made = tuple(rule for name in given if isinstance(rule := make(Mask, name, given[name], "mask"), Mask))
    made = tuple(rule.turned() for rule in made) if blocks else made
    return (AnyOf(made),) if join == "or" and len(made) > 1 else made


def scores(given: Mapping[str, Any]) -> tuple[Score, ...]:
    """Return the score rules of a mapping from names to settings, in its order."""
    return tuple(rule for name in given if isinstance(rule := make(Score, name, given[name], "score"), Score))
