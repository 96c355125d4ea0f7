"""The scale: scores `q k^T` times the wrong number, or at the wrong place."""

from __future__ import annotations

import math

from attn_exp.mistakes.mistake import Mistake, around, instead, together

MISTAKES = {
    "no_scale": Mistake(
        says="The scores q k^T are not divided by sqrt(d).",
        fix="logits = scores / sqrt(d)",
        seen="the Annotated Transformer's readers; Understanding Deep Learning, notebook 12.1",
        stage="logits",
        changes=(instead(scaled=lambda at, scores: scores),),
    ),
    "scale_by_d": Mistake(
        says="The scores are divided by d instead of sqrt(d).",
        fix="logits = scores / sqrt(d)",
        seen="aprender PR 1258 tests for it",
        stage="logits",
        changes=(instead(scaled=lambda at, scores: scores / at.size),),
    ),
    "scale_by_sqrt_d_model": Mistake(
        says="The scores are divided by the root of the model's size instead of the head's.",
        fix="divide by sqrt(d_model / heads)",
        seen="d_model written for d_k in many multi-head layers",
        stage="logits",
        changes=(
            instead(scaled=lambda at, scores: scores / math.sqrt(at.width)),  # the width of x
            instead(scaled=lambda at, scores: scores / math.sqrt(at.heads * at.size)),  # of all heads side by side
        ),
    ),
    "scale_by_sqrt_heads": Mistake(
        says="The scores are divided by the root of the number of heads instead of the size of a head.",
        fix="divide by sqrt(q.shape[-1])",
        seen="the wrong one of the four axes of q",
        stage="logits",
        changes=(instead(scaled=lambda at, scores: scores / math.sqrt(at.heads)),),
    ),
    "scale_by_sqrt_keys": Mistake(
        says="The scores are divided by the root of the number of keys instead of the size of a head.",
        fix="divide by sqrt(k.shape[-1])",
        seen="shape[-2] written for shape[-1]",
        stage="logits",
        changes=(instead(scaled=lambda at, scores: scores / math.sqrt(at.keys)),),
    ),
    "scale_multiplied": Mistake(
        says="The scores are multiplied by sqrt(d) instead of divided.",
        fix="logits = scores / sqrt(d)",
        seen="a factor written for its inverse",
        stage="logits",
        changes=(instead(scaled=lambda at, scores: scores * math.sqrt(at.size)),),
    ),
    "scale_twice": Mistake(
        says="The scale is applied twice, such as to q and then to the scores again.",
        fix="scale once",
        seen="library attention called with a q that was scaled already",
        stage="logits",
        changes=(instead(scaled=lambda at, scores: scores * at.rules.scale**2),),
    ),
    "scale_after_softmax": Mistake(
        says="The weights are scaled after the softmax instead of the scores before it.",
        fix="weights = softmax(scores * scale)",
        seen="dropped brackets: softmax(q k^T) / sqrt(d)",
        stage="weights",
        changes=(
            together(
                instead(scaled=lambda at, scores: scores),
                around("after", lambda after, at, weights, allowed: after(at, weights, allowed) * at.rules.scale),
            ),
        ),
    ),
}
