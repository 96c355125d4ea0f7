"""How each box of a sheet is computed, from what is given or asked before it: words beside the box."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attn_exp.diagnosis.paper import Blank, Paper
from attn_exp.report import words

FORMULAS = {
    "q": words.FORMULA_SIDE,
    "k": words.FORMULA_SIDE,
    "v": words.FORMULA_SIDE,
    "scores": "scores = q kᵀ",
    "logits": "logits = scores × {scale}",
    "capped": "capped = {cap} tanh(logits / {cap})",
    "masked": "masked = {logits} + {added}, −∞ where a token may not look",
    "weights": "weights = exp(logit) / sum of exp over the row",
    "context": "context = weights v",
    "output": "output = context of all heads, side by side{projection}",
}
TURNED = {
    "q": words.TURNED_SIDE,
    "k": words.TURNED_SIDE,
    "v": words.TURNED_SIDE,
    "scores": "scores = kᵀ q: a column for each query",
    "weights": "weights = exp(logit) / sum of exp over the column",
    "context": "context = v weights",
    "output": "output = context of all heads, one below the other",
}
OTHER_WEIGHTS = {"sum": "weights = logit / sum", "sigmoid": "weights = 1 / (1 + exp(−logit)), each by itself"}
CHAIN = ("output", "context", "weights", "masked", "capped", "logits", "scores")
"""Stages after q, k and v, each before the one that it is made of."""


def formula(paper: Paper, blank: Blank) -> str:
    """Return how a box is computed, and how each stage is that lies between it and the box before."""
    parts = [of_stage(paper, blank.stage)]
    asked = {other.stage for other in paper.blanks}
    for stage in CHAIN[CHAIN.index(blank.stage) + 1 :] if blank.stage in CHAIN else ():
        if stage in asked or stage not in paper.exact or (stage == "weights" and paper.given_weights):
            break
        parts += between(paper, stage)
    return ", ".join(parts)


def between(paper: Paper, stage: str) -> Iterator[str]:
    """Yield how a stage that no box asks is computed, where it is not the stage before it again."""
    if stage == "logits":
        plain = paper.sheet.settled.multiplier == 1
        yield "logit = score" if plain else f"logit = score × {scale(paper)}"
    elif not (
        (stage == "capped" and paper.cap is None)
        or (stage == "masked" and paper.added is None)
        or (stage == "context" and lone(paper))
    ):
        yield of_stage(paper, stage)


def of_stage(paper: Paper, stage: str) -> str:
    """Return how a stage is computed from the one before."""
    settled, projections = paper.sheet.settled, paper.sheet.problem.projections
    if stage == "output" and lone(paper):
        return "output = v weights" if paper.turned else "output = weights v"
    text = (TURNED if paper.turned else {}).get(stage, FORMULAS[stage])
    if stage == "output" and paper.turned and settled.output_projection:
        text = "output = W_oᵀ times the context of all heads, one below the other"
    if stage == "weights":
        text = OTHER_WEIGHTS.get(settled.rules.normalizer.name, text) + extra(paper)
    logits = "logits" if paper.cap is None else "capped"
    cap = "" if paper.cap is None else f"{paper.cap:.10g}"
    told = text.format(
        side=stage, source=source(paper, stage), scale=scale(paper), cap=cap,
        logits=logits, added=words.ADDED, projection=", times W_o" if settled.output_projection else "",
    )  # fmt: skip
    bias = "b_o" if stage == "output" and settled.output_projection else f"b_{stage}" if stage in "qkv" else ""
    return told + (f" + {bias}" if bias in projections else "") + turning(paper, stage)


def source(paper: Paper, stage: str) -> str:
    """Return what a side is a projection of."""
    return words.MEMORY if stage in "kv" and paper.sheet.problem.memory is not None else "x"


def extra(paper: Paper) -> str:
    """Return the logit of no key that takes part in the sum, or those of all heads."""
    numbers = ", ".join(f"{number:.10g}" for number in dict.fromkeys(paper.extra))
    return f", one more logit in the sum: {numbers}" if numbers else ""


def turning(paper: Paper, stage: str) -> str:
    """Return which positions turn q and k, if any do."""
    turning = [position for position in paper.sheet.settled.positions if not position.changes_x]
    names = " and ".join(type(position).__name__ for position in turning)
    return f", turned by {names}" if names and stage in ("q", "k") else ""


def lone(paper: Paper) -> bool:
    """Say whether the output is the context of one head."""
    return paper.sheet.settled.head == 1 and not paper.sheet.settled.output_projection


def scale(paper: Paper) -> str:
    """Write the scale exactly: in few digits where these say all, else beside them as a root or in many digits."""
    multiplier = paper.sheet.settled.multiplier
    few = f"{multiplier:.4g}"
    if float(few) == multiplier:
        return few
    number = round(multiplier**-2) if multiplier else 0
    if number and math.isclose(number**-0.5, multiplier):
        return f"{few} (1/√{number})"
    return f"{multiplier:.10g}"
