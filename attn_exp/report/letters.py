"""Why rows share a letter: what a variant pins that its run has already, or another form of the same steps."""

from __future__ import annotations

from dataclasses import fields

from attn_exp.config.schema import Variant
from attn_exp.config.spelling import spelled
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.settling import following
from attn_exp.experiment.splits import settled_as
from attn_exp.report import words
from attn_exp.report.verdict import listed

NOT_A_PIN = ("form", "output_projection")
"""Settings of a variant that a run has no value of its own for."""


def reasons(comparison: Comparison) -> list[str]:
    """Return why variants share their letter with one before them, in a sentence each; other forms in one together."""
    leaders: dict[str, str] = {}
    forms: dict[str, list[str]] = {}
    said = list[str]()
    for row in comparison.rows:
        leader = leaders.setdefault(row.same_as, row.variant)
        if not row.same_as or leader == row.variant:
            continue
        pinned = pinned_alike(comparison, row.variant, leader)
        if pinned:
            said.append(words.PINS.format(variant=row.variant, pins=pinned))
        else:
            forms.setdefault(leader, []).append(row.variant)
    others = [
        (words.OTHER_FORM if len(names) == 1 else words.OTHER_FORMS).format(variants=listed(names), leader=leader)
        for leader, names in forms.items()
        if any(comparison.config.variant[name].form != comparison.config.variant[leader].form for name in names)
    ]
    return others + said


def pinned_alike(comparison: Comparison, name: str, leader: str) -> str:
    """Return what a variant pins and its letter's first does not: what the run has already, what changes nothing."""
    config, spelling = comparison.config, settled_as(comparison, name).words
    mine, known = following(config.variant[name], config), pins(config.variant[leader])
    own_words = {
        key: f"{key}={spelling.get(key, spelled(mine[key]))}" for key in pins(config.variant[name]) if key not in known
    }
    already = [word for key, word in own_words.items() if mine[key] == getattr(config, key)]
    idle = [word for word in own_words.values() if word not in already]
    parts = [words.PINNED_ALREADY.format(pins=listed(already))] if already else []
    parts += [words.PINNED_IDLE.format(pins=listed(idle))] if idle else []
    return f"; {words.AND} ".join(parts)


def pins(variant: Variant) -> list[str]:
    """Return the settings that a variant has of its own."""
    names = (field.name for field in fields(variant) if field.name not in NOT_A_PIN)
    return [name for name in names if getattr(variant, name) is not None]
