"""One row of the comparison: a variant with its settings settled, run on the problem."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp import forms
from attn_exp.config.schema import Config, Variant
from attn_exp.errors import UserError, shown, unknown
from attn_exp.experiment.conventions import convention, empty_rows
from attn_exp.experiment.mistakes import MISTAKES
from attn_exp.forms.trace import Trace
from attn_exp.problem.heads import Heads, heads, pooled, split, together
from attn_exp.problem.problem import Problem, projected
from attn_exp.reference.oracle import Question
from attn_exp.rules import masks, positions, scores
from attn_exp.rules.normalizers import NORMALIZERS, TAKES_EXTRA
from attn_exp.rules.positions.position import Position
from attn_exp.rules.rules import Rules

Array = NDArray[Any]


@dataclass(frozen=True)
class Settled:
    """A variant in which nothing follows the run any more."""

    name: str
    form: str
    heads: Heads
    scale: bool | float
    multiplier: float
    output_projection: bool
    mistake: str
    rules: Rules
    positions: tuple[Position, ...]
    words: Mapping[str, str]
    starts_late: bool
    ends_early: bool
    empty: str
    tiled: bool

    @property
    def head(self) -> int:
        """How many query heads there are."""
        return self.heads.query

    @property
    def computed_in(self) -> np.dtype[Any]:
        """The type that its form computes in, of a problem in float64."""
        return forms.computed_in(self.form)

    @property
    def question(self) -> Question:
        """What the reference is asked to check it."""
        return Question(
            weights=forms.reference(self.form),
            heads=self.heads,
            rules=self.rules,
            positions=self.positions,
            output_projection=self.output_projection,
            empty=self.empty,
            tiled=self.tiled,
        )

    @property
    def refused(self) -> str | None:
        """Why the form cannot compute these rules, or None where it can."""
        if self.starts_late and not hasattr(forms.module(self.form), "mix"):
            return f"form={self.form} forms no weights, and this problem starts at given ones"
        if self.ends_early and hasattr(forms.module(self.form), "CONTEXT_ALONE"):
            return f"form={self.form} computes the context alone, and this problem has no values"
        return forms.refuses(self.form, self.rules)


def settle(name: str, variant: Variant, config: Config, problem: Problem) -> Settled:
    """Fill what the variant does not pin from the run, and check that it fits the problem.

    Raises:
        UserError: an unknown form, rule or mistake, or settings that do not fit the problem.
    """
    if variant.form not in forms.NAMES:
        raise UserError(unknown(variant.form, forms.NAMES, f"variant.{name}.form"))
    chosen = Follow(config, variant)
    mistake = chosen("mistake")
    if mistake not in MISTAKES:
        raise UserError(unknown(mistake, tuple(MISTAKES), "mistake"))
    follows = variant.head is None or variant.kv_head is not None  # pinned heads bring their own keys and values
    shares = heads(chosen("head"), chosen("kv_head") if follows else None, problem)
    size = 1 if problem.q is None else problem.q.shape[-1] // shares.query
    multiplier = factor(chosen("scale"), size)
    rules, placed, words = ruled(chosen, problem, shares.query, multiplier)
    check_positions(placed, size, problem)
    return Settled(
        name=name,
        form=variant.form,
        heads=shares,
        scale=chosen("scale"),
        multiplier=multiplier,
        output_projection=variant.output_projection,
        mistake=mistake,
        rules=rules,
        positions=placed,
        words=words,
        starts_late=problem.weights is not None,
        ends_early=problem.v is None,
        empty=convention(chosen("convention")).empty,
        tiled=convention(chosen("convention")).tiled,
    )


@dataclass(frozen=True)
class Follow:
    """Answers what a setting is: the variant's where it pins it, else the run's."""

    config: Config
    variant: Variant

    def __call__(self, setting: str) -> Any:
        pinned = getattr(self.variant, setting)
        return getattr(self.config, setting) if pinned is None else pinned


def ruled(
    chosen: Follow, problem: Problem, head: int, multiplier: float
) -> tuple[Rules, tuple[Position, ...], dict[str, str]]:
    """Return the rules and positions of a variant, and what a table calls them."""
    check_start(chosen, problem)
    rows, keys, means = len(problem.tokens), problem.keys, convention(chosen("convention"))
    if chosen("normalizer") not in NORMALIZERS:
        raise UserError(unknown(chosen("normalizer"), tuple(NORMALIZERS), "normalizer"))
    rules = Rules(
        scale=multiplier,
        masks=masks(chosen("mask"), chosen("mask_join"), means.blocks),
        scores=scores(chosen("score")),
        normalizer=chosen("normalizer"),
        offset=keys - rows if (chosen("align") or means.align) == "bottom_right" else 0,
        softmax_dtype=means.softmax_dtype,
        bend_last=means.caps_last,
    )
    for rule in (*rules.masks, *rules.scores):
        misfit = rule.misfit(head, rows, keys)
        if misfit:
            raise UserError(misfit)
    if rules.normalizer not in TAKES_EXTRA and any(rule.extra(0) is not None for rule in rules.scores):
        raise UserError(f"normalizer={rules.normalizer} gives each key its own weight: score=sink has nothing to share")
    words = {"mask": f" {chosen('mask_join')} ", "score": " + ", "position": " + "}
    return (
        rules,
        positions(chosen("position")),
        {group: named(chosen(group), join) for group, join in words.items()} | {"convention": chosen("convention")},
    )


def check_start(chosen: Follow, problem: Problem) -> None:
    """Refuse rules for a problem that starts at the weights, where no rule would have any effect."""
    for group in ("mask", "score", "position"):
        if problem.weights is not None and chosen(group):
            raise UserError(f"{group}={'+'.join(chosen(group))} changes logits, but this problem starts at the weights")
    if problem.weights is not None and chosen("normalizer") != "softmax":
        raise UserError(f"normalizer={chosen('normalizer')} makes weights, but this problem starts at given ones")


def named(group: Mapping[str, Any], join: str) -> str:
    """Return what a table calls a group's choices: `window(left=2, right=0) and padding(lengths=3)`, or `none`."""
    calls = []
    for name, settings in group.items():
        told = ", ".join(f"{key}={shown(value)}" for key, value in settings.items() if value is not None)
        calls.append(f"{name}({told})" if told else name)
    return join.join(calls) or "none"


def check_positions(placed: tuple[Position, ...], size: int, problem: Problem) -> None:
    """Refuse positions that the problem has no place for."""
    for each in placed:
        if each.changes_x and problem.x is None:
            raise UserError(f"position={type(each).__name__.lower()} is added to x, but this problem starts after x")
        misfit = each.misfit(size)
        if misfit:
            raise UserError(misfit)


def factor(scale: bool | float, size: int) -> float:
    """Return what the scores are multiplied by: 1 / sqrt(d), 1, or the number given."""
    if isinstance(scale, bool):
        return 1 / math.sqrt(size) if scale else 1.0
    return scale


def execute(settled: Settled, problem: Problem) -> Trace:
    """Compute the variant on the problem and return every stage that its form formed."""
    return computed(settled, problem, forms.attend(settled.form))


def keep(settled: Settled, problem: Problem, weights: str, tell: Callable[[float], None] | None = None) -> Trace:
    """Compute it and keep of the weights what `weights` says: all, blocks alone, or what the form has anyway.

    A problem without values ends in its weights: they are kept.
    """
    trace = computed(settled, problem, forms.keeping(settled.form, weights, tell))
    if weights != "blocks" or trace.weights is None or trace.output is None:
        return trace
    from attn_exp.forms._blocks.portrait import CELLS, summary_of  # noqa: PLC0415 - few runs need the engine

    return trace.replace(
        **dict.fromkeys(("scores", "logits", "capped", "masked", "weights")), summary=summary_of(trace.weights, CELLS)
    )


def computed(settled: Settled, problem: Problem, attend: Callable[..., Trace]) -> Trace:
    """Put the problem through a form, from marked positions to the output."""
    q, k, v = placed(settled, problem)
    if problem.weights is not None:
        weights = np.broadcast_to(problem.weights, (settled.head, *problem.weights.shape))
        stages = forms.module(settled.form).mix(Trace(v=v, weights=weights))
    else:
        stages = attend(q, k, v, settled.rules)
    stages = MISTAKES[settled.mistake](empty_rows(stages, settled.rules, settled.empty))
    if stages.context is None:
        return stages
    return stages.replace(output=joined(stages.context, settled, problem))


def placed(settled: Settled, problem: Problem) -> tuple[Array | None, Array | None, Array | None]:
    """Return q `[h t d]`, k `[g s d]` and v `[g s e]`: positions marked, key/value heads shared as settled."""
    sides = problem.q, problem.k, problem.v
    if problem.x is not None and any(each.changes_x for each in settled.positions):
        x = functools.reduce(lambda x, each: each.embed(x), settled.positions, problem.x)
        sides = tuple(projected(x, problem.projections, letter) for letter in "qkv")  # type: ignore[assignment] # three
    shares = settled.heads
    q = None if sides[0] is None else split(sides[0], shares.query)
    k, v = (None if each is None else pooled(split(each, shares.given), shares.shared) for each in sides[1:])
    for position in settled.positions:
        if q is not None and k is not None:
            q = position.turn(q, np.arange(q.shape[1]) + settled.rules.offset)
            k = position.turn(k, np.arange(k.shape[1]))
    if settled.tiled and k is not None:
        turns = np.arange(shares.query) % shares.shared
        k, v = k[turns], None if v is None else v[turns]
    return q, k, v


def joined(context: Array, settled: Settled, problem: Problem) -> Array:
    """Put the heads side by side `[t h*e]`, and multiply by W_o where the variant has an output projection."""
    if settled.output_projection and problem.projections:
        return projected(together(context), problem.projections, "o")
    return together(context)
