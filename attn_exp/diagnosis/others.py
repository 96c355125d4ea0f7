"""What a function may compute instead of what was asked: other settings, in the words of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes.mistake import Change
from attn_exp.rules import names, normalizer
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.window import Window
from attn_exp.rules.positions.rope import Rope
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap


def others(recipe: Recipe) -> Iterator[tuple[str, Change]]:
    """Yield other settings than those of a recipe, each with the change that makes them."""
    known = {type(rule) for rule in (*recipe.rules.masks, *recipe.rules.scores)}
    for word, rule in RULES:
        if type(rule) not in known:
            yield word, with_mask(rule) if isinstance(rule, Mask) else with_score(rule)
    for left in range(1, 9) if not recipe.rules.masks else ():
        yield f"mask=[causal,window] mask.window.left={left}", with_mask(Causal(), Window(left, -1))
        yield f"mask=window mask.window.left={left} mask.window.right={left}", with_mask(Window(left, left))
    for name in names("normalizer"):
        if name != recipe.rules.normalizer.name:
            yield f"normalizer={name}", with_normalizer(name)
    if not recipe.positions:
        yield "position=rope", with_rope(Rope())
        yield "position=rope position.rope.interleaved=true", with_rope(Rope(interleaved=True))


RULES: tuple[tuple[str, Mask | Score], ...] = (
    ("mask=causal", Causal()),
    ("score=sink score.sink.logit=0", Sink(0.0)),
    ("score=alibi", Alibi()),
    *((f"score=softcap score.softcap.cap={cap:g}", Softcap(cap)) for cap in (10.0, 20.0, 30.0, 50.0, 100.0)),
)


def with_normalizer(name: str) -> Change:
    return lambda recipe: recipe.with_rules(normalizer=normalizer(name))


def with_mask(*masks: Mask) -> Change:
    return lambda recipe: recipe.with_rules(masks=(*recipe.rules.masks, *masks))


def with_score(rule: Score) -> Change:
    return lambda recipe: recipe.with_rules(scores=(*recipe.rules.scores, rule))


def with_rope(rope: Rope) -> Change:
    return lambda recipe: replace(recipe, positions=(rope,))
