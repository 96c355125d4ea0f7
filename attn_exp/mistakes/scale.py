"""Mistakes in the scale: `q k^T` is multiplied by the wrong number, or scaled in the wrong place."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from attn_exp.forms.pipeline import Setup
from attn_exp.mistakes.mistake import Change, Mistake, around, instead, together


def multiply_scale(factor: float) -> Change:
    return around("scaled", lambda scaled, setup, scores: scaled(setup, scores) * factor)


def use_constant(factor: float) -> Change:
    return instead(scaled=lambda setup, scores: scores * factor)


def scale_weights(factor: Callable[[Setup], float]) -> Change:
    return together(
        instead(scaled=lambda setup, scores: scores),
        around("after", lambda after, setup, weights, allowed: after(setup, weights, allowed) * factor(setup)),
    )


CONSTANTS = tuple(size**power for size in (8, 16, 32, 64, 128, 256, 512, 768) for power in (-0.5, -1.0))

MISTAKES = {
    "no_scale": Mistake(
        says="The scores q k^T are not divided by sqrt(d).",
        fix="logits = scores / sqrt(d)",
        seen="readers of the Annotated Transformer; Understanding Deep Learning, notebook 12.1",
        stage="logits",
        changes=(instead(scaled=lambda setup, scores: scores),),
    ),
    "scale_by_d": Mistake(
        says="The scores are divided by d instead of sqrt(d).",
        fix="logits = scores / sqrt(d)",
        seen="aprender PR 1258 tests for it",
        stage="logits",
        changes=(instead(scaled=lambda setup, scores: scores / setup.size),),
    ),
    "scale_by_sqrt_d_model": Mistake(
        says="The scores are divided by the square root of the model size instead of the head size.",
        fix="divide by sqrt(d_model / heads)",
        seen="d_model instead of d_k in many multi-head layers",
        stage="logits",
        changes=(
            instead(scaled=lambda setup, scores: scores / math.sqrt(setup.width)),  # the width of x
            # the width of all heads side by side
            instead(scaled=lambda setup, scores: scores / math.sqrt(setup.heads * setup.size)),
        ),
    ),
    "scale_by_sqrt_heads": Mistake(
        says="The scores are divided by the square root of the number of heads instead of the head size.",
        fix="divide by sqrt(q.shape[-1])",
        seen="the wrong one of q's four axes",
        stage="logits",
        changes=(instead(scaled=lambda setup, scores: scores / math.sqrt(setup.heads)),),
    ),
    "scale_by_sqrt_keys": Mistake(
        says="The scores are divided by the square root of the number of keys instead of the head size.",
        fix="divide by sqrt(k.shape[-1])",
        seen="shape[-2] instead of shape[-1]",
        stage="logits",
        changes=(instead(scaled=lambda setup, scores: scores / math.sqrt(setup.keys)),),
    ),
    "scale_by_keys": Mistake(
        says="The scores are divided by the number of keys.",
        fix="divide by sqrt(k.shape[-1])",
        seen="k.shape[0] of a key matrix",
        stage="logits",
        changes=(instead(scaled=lambda setup, scores: scores / setup.keys),),
        of_code=True,
    ),
    "scores_negated": Mistake(
        says="The scores have the wrong sign: the less a key is like a query, the more weight it gets.",
        fix="logits = q @ k^T / sqrt(d)",
        seen="a distance turned into a score, or a minus sign left in",
        stage="logits",
        changes=(multiply_scale(-1.0),),
        of_code=True,
    ),
    "scale_other": Mistake(
        says="The scores are multiplied by a factor other than 1 / sqrt(d).",
        fix="logits = scores / sqrt(d)",
        seen="a temperature left in; the fourth root of d, meant for q and for k, applied to the scores once",
        stage="logits",
        changes=(
            multiply_scale(0.5),
            multiply_scale(2.0),
            instead(scaled=lambda setup, scores: scores / setup.size**0.25),
        ),
        of_code=True,
    ),
    "scale_fixed": Mistake(
        says="The scores are divided by a constant, whatever the head size.",
        fix="divide by sqrt(q.shape[-1])",
        seen="/ 8, written for heads of size 64",
        stage="logits",
        changes=tuple(use_constant(factor) for factor in CONSTANTS),
        of_code=True,
    ),
    "scale_by_batch": Mistake(
        says="The scores are divided by the batch size, or by its square root.",
        fix="divide by sqrt(q.shape[-1])",
        seen="q.shape[0] or q.size(0) instead of the last axis",
        stage="logits",
        changes=(
            instead(scaled=lambda setup, scores: scores / math.sqrt(setup.batch)),
            instead(scaled=lambda setup, scores: scores / setup.batch),
        ),
        needs=("batch",),
        of_code=True,
    ),
    "scale_by_heads": Mistake(
        says="The scores are divided by the number of heads.",
        fix="divide by sqrt(q.shape[-1])",
        seen="num_heads instead of head_dim",
        stage="logits",
        changes=(instead(scaled=lambda setup, scores: scores / setup.heads),),
        of_code=True,
    ),
    "scale_by_sqrt_queries": Mistake(
        says="The scores are divided by the square root of the number of queries instead of the head size.",
        fix="divide by sqrt(q.shape[-1])",
        seen="q.shape[-2] instead of q.shape[-1]",
        stage="logits",
        changes=(instead(scaled=lambda setup, scores: scores / math.sqrt(setup.rows)),),
        of_code=True,
    ),
    "scale_multiplied": Mistake(
        says="The scores are multiplied by a power of d, or of the model size, instead of being divided by sqrt(d).",
        fix="logits = scores / sqrt(d)",
        seen="a factor instead of its inverse; / d**-0.5 and / d**-2",
        stage="logits",
        changes=(
            instead(scaled=lambda setup, scores: scores * math.sqrt(setup.size)),
            instead(scaled=lambda setup, scores: scores * setup.size),
            instead(scaled=lambda setup, scores: scores * setup.size**2),
            *(instead(scaled=lambda setup, scores, power=power: scores * setup.width**power) for power in (0.5, 1.0)),
            *(
                instead(scaled=lambda setup, scores, power=power: scores * (setup.heads * setup.size) ** power)
                for power in (0.5, 1.0)
            ),
        ),
    ),
    "scores_floored": Mistake(
        says="The scores are rounded down to integers: // is floor division.",
        fix="logits = scores / sqrt(d), with a single slash",
        seen="scores // math.sqrt(d_k)",
        stage="logits",
        changes=(around("scaled", lambda scaled, setup, scores: np.floor(scaled(setup, scores))),),
        of_code=True,
    ),
    "scale_twice": Mistake(
        says="The scale is applied twice, for example to q and again to the scores.",
        fix="apply the scale once",
        seen="a library's attention called with q already scaled",
        stage="logits",
        changes=(instead(scaled=lambda setup, scores: scores * setup.rules.scale**2),),
    ),
    "scale_after_softmax": Mistake(
        says="The weights are scaled after the softmax instead of the scores before it.",
        fix="weights = softmax(scores * scale)",
        seen="missing parentheses: softmax(q k^T) / sqrt(d)",
        stage="weights",
        changes=(
            scale_weights(lambda setup: setup.rules.scale),
            scale_weights(lambda setup: setup.width**-0.5),  # the width of x
            scale_weights(lambda setup: (setup.heads * setup.size) ** -0.5),  # the width of all heads side by side
            scale_weights(lambda setup: 1.0 / setup.size),
        ),
        also=("", "scale_by_sqrt_d_model", "scale_by_sqrt_d_model"),
    ),
}
