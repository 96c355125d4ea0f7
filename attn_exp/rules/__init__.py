"""The rules: masks, scores, positions and normalizers, one per file, and the `Grid` that they are evaluated on.

A rule is a frozen dataclass; its fields are its settings. Rules are evaluated on a `Grid` of logits: a mask says which
of the logits it `allows`, and a score rule transforms them or returns a `bias` to add. The `span` of a mask lets forms
skip blocks of masked keys. No rule knows which form runs it.

Only masks produce -inf. If a user passes an additive mask, its -inf are first converted to booleans, so that NaN at
masked keys cannot leak. If a stored run names a rule whose code is not available, a placeholder (`Absent`) takes its
place. Each file also has an expected result, written by hand: an `Example` (`example.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np

from attn_exp import registry
from attn_exp.arrays import Array
from attn_exp.config import kinds
from attn_exp.errors import UserError, unknown
from attn_exp.rules.masks.mask import AnyOf, Mask
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.positions.position import Position
from attn_exp.rules.scores.score import Score

KINDS = {"mask": Mask, "score": Score, "position": Position}
"""The base class of the rules of each group."""


def names(group: str) -> tuple[str, ...]:
    home = package(group)
    return (*registry.names(registry.folder(home), without=(group,)), *registry.outside(home))


def package(group: str) -> str:
    return f"{__name__}.{group}s"


def rule_class(group: str, name: str) -> type:
    """Return the class of a rule; its module is imported on first use."""
    return registry.member_class(package(group), name, KINDS[group])


def endless(key: str) -> Any:
    """Return the value that means "no limit" for a setting, `"mask.window.left" -> -1`; None if there is none."""
    # a key with fewer than three parts is padded with empty ones, which name no group
    group, name, setting = (["", "", "", *key.split(".")])[-3:]
    if group not in KINDS or name not in names(group) or registry.is_absent(package(group), name):
        return None
    return kinds.kind_of(get_type_hints(rule_class(group, name), include_extras=True).get(setting, Any)).endless


def make(group: str, name: str, settings: Any) -> Any:
    """Create a rule from its group, its name and its settings.

    Raises:
        UserError: the group has no rule of that name, or the settings are invalid.
    """
    if name not in names(group):
        raise UserError(unknown(f"{group}.{name}", [f"{group}.{choice}" for choice in names(group)], group))
    if registry.is_absent(package(group), name):
        return ABSENT[group](name)
    return kinds.make(rule_class(group, name), settings, f"{group}.{name}")


def effective_settings(group: str, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a rule that have an effect: those that are set, and that no other setting overrides."""
    present = {key: value for key, value in settings.items() if value not in (None, ())}
    overridden_by = {} if registry.is_absent(package(group), name) else getattr(rule_class(group, name), "instead", {})
    return {
        key: value
        for key, value in present.items()
        if not any(other in present for other in overridden_by.get(key, ()))
    }


def normalizer(name: str) -> Normalizer:
    """Return the normalizer of that name.

    Raises:
        UserError: there is no normalizer of that name.
    """
    if name not in names("normalizer"):
        raise UserError(unknown(name, names("normalizer"), "normalizer"))
    if registry.is_absent(package("normalizer"), name):
        return absent_normalizer(name)
    return registry.constant(package("normalizer"), name, Normalizer)


def make_masks(
    settings: Mapping[str, Any], join: str, blocks: bool = False, tokens: Sequence[str] = ()
) -> tuple[Mask, ...]:
    """Create masks from a mapping of names to settings.

    - `join`: with "or", a query sees a key if any mask allows it; otherwise all masks must.
    - `blocks`: whether True means hidden in the user's booleans.
    - `tokens`: the names of the keys.
    """
    created = tuple((mask.inverted() if blocks else mask).with_tokens(tokens) for mask in make_all("mask", settings))
    return (AnyOf(created),) if join == "or" and len(created) > 1 else created


def make_all(group: str, settings_by_name: Mapping[str, Any]) -> tuple[Any, ...]:
    """Create the rules of a group from a mapping of names to settings, in the order of the mapping."""
    return tuple(make(group, name, settings) for name, settings in settings_by_name.items())


@dataclass(frozen=True)
class Absent:
    """A placeholder for a rule whose code is not available; it raises an error when it is used."""

    stands_for: str

    def refuse(self, *given: Any, **more: Any) -> Any:
        raise UserError(
            f"{self.stands_for} is code from outside the package; name its file on the command line: --with FILE"
        )


class AbsentMask(Absent, Mask):
    allows = Absent.refuse


class AbsentScore(Absent, Score):
    bend = Absent.refuse


class AbsentPosition(Absent, Position):
    embed = Absent.refuse


def absent_normalizer(name: str) -> Normalizer:
    def weigh(logits: Array, extra: Array | None) -> Array:
        return np.asarray(Absent(name).refuse())

    weigh.__name__ = name
    return Normalizer(weigh, takes_extra=True)


ABSENT = {"mask": AbsentMask, "score": AbsentScore, "position": AbsentPosition}
