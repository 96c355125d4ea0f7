"""What is said beside a stage of a walk: the settings that made it what it is."""

from __future__ import annotations

import numpy as np

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.report import words
from attn_exp.rules.scores.score import Score


def remark(stage: str, comparison: Comparison, settled: Settled) -> str:
    """Say which settings made a stage what it is."""
    settings = {key: f"{key}={word}" for key, word in settled.words.items() if word != "none"}
    if stage == "logits":
        return scaling(comparison, settled)
    if stage in ("q", "k", "v") and "position" in settings:
        named = positions_of(settled, values=stage == "v")
        return words.WITH_POSITION.format(position=f"position={named}") if named else ""
    if stage == "scores":
        return scores_that(comparison, settled, "pair")
    if stage == "capped":
        return scores_that(comparison, settled, "bend")
    added = (settings.get("mask", ""), scores_that(comparison, settled, "bias"))
    return ", ".join(filter(None, added)) if stage == "masked" else ""


def positions_of(settled: Settled, values: bool) -> str:
    """Return the positions that change queries and keys, or those that are added to x and so change `values` too."""
    named = zip(settled.positions, settled.words["position"].split(" + "), strict=False)
    return " + ".join(word for position, word in named if position.changes_x or not values)


def scores_that(comparison: Comparison, settled: Settled, act: str) -> str:
    """Return the score rules that do something: `bend` logits, say, or add a `bias` to them."""
    named = zip(settled.rules.scores, settled.words["score"].split(" + "), strict=False)
    acting = [word for rule, word in named if acts(rule, act, comparison.traces[settled.name])]
    return f"score={' + '.join(acting)}" if acting else ""


def acts(rule: Score, act: str, trace: Trace) -> bool:
    """Say whether a rule does something; of one from outside the numbers tell it, as its code may not be at hand."""
    if type(rule).__module__.startswith(Score.__module__.removesuffix("score")):
        return getattr(type(rule), act) is not getattr(Score, act)
    return acts_in(trace, act)


def acts_in(trace: Trace, act: str) -> bool:
    """Say whether the numbers of a stage are others than those of the one before, places that are masked aside."""
    pairs = {"bend": (trace.logits, trace.capped), "bias": (trace.capped, trace.masked)}
    before, after = pairs.get(act, (None, None))
    if before is None or after is None:
        return False
    return bool((np.isfinite(after) & (before != after)).any())


def scaling(comparison: Comparison, settled: Settled) -> str:
    """Say what the scores are multiplied by, and why."""
    queries = comparison.traces[settled.name].q
    if settled.scale is True and queries is not None:
        size = queries.shape[-1]
        return words.C_SCALED.format(d=size, c=settled.multiplier)
    return (words.C_UNSCALED if settled.scale is False else words.C_IS).format(c=settled.multiplier)
