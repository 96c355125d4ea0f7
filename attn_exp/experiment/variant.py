"""Settle variants: fill in all their settings, and check that these fit the problem.

A variant pins some settings and takes the others from the run. `settle` turns a `Variant` of the configuration into a
`Settled`, with its rules, head counts and positions as objects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from attn_exp import forms, mistakes, registry
from attn_exp.config.schema import Config, Variant
from attn_exp.errors import UserError, shown, unknown
from attn_exp.experiment.library_conventions import Convention, convention
from attn_exp.own_code import Named, is_code
from attn_exp.problem.problem import Heads, Problem, count_heads
from attn_exp.reference.oracle import SUBTRACTED, Question
from attn_exp.rules import effective_settings, make_all, make_masks, normalizer, rule_class
from attn_exp.rules.grid import Rule
from attn_exp.rules.masks.mask import AllOf, Mask
from attn_exp.rules.positions.position import Position
from attn_exp.rules.rules import Rules

if TYPE_CHECKING:
    from attn_exp.experiment.verdict import Verdict
    from attn_exp.forms.form import Form
    from attn_exp.forms.trace import Trace


FLOAT64 = np.dtype(np.float64)


class OwnForm(Protocol):
    """A user's own function, imported and ready to be called by a run.

    The code that imports it is in `diagnosis`, which imports this package, so this package cannot import `diagnosis`.
    The caller passes a `Bind` instead.
    """

    @property
    def form(self) -> Form:
        """The form that calls this function."""

    @property
    def layer(self) -> bool:
        """Whether the function takes x and the weight matrices of a layer; otherwise it takes q, k and v as heads."""

    @property
    def takes_output_projection(self) -> bool:
        """Whether the function is called with W_o too, and returns the output of a layer."""

    @property
    def bind(self) -> Bind:
        """Binds the function again for a variant with other settings."""

    def whole(self, question: Question, problem: Problem, *, usual: bool) -> Trace:
        """Call the function with a problem's x and return the stages; `usual`: scores are divided by `sqrt(d)`."""

    def judge(self, heads: Heads) -> Verdict:
        """Return the verdict on the function, checked with the settings of its variant and these head counts."""


@dataclass(frozen=True)
class Settled:
    """A variant with all settings filled in.

    `scale`: the setting, true, false or a number.
    `multiplier`: the number by which the scores are multiplied.
    `words`: how tables name the masks, scores, positions and the convention.
    `has_given_weights`: whether the problem starts from given weights.
    `has_no_values`: whether the problem ends with the weights.
    `empty`, `tiled`: as in `Convention`.
    `own`: the user's own function, if the form names one that may run.
    `failed`: the reason why that function returned no result; empty if it did.
    `given_in`: the dtype of the problem's arrays.
    """

    name: str
    form: str
    heads: Heads
    scale: bool | float
    multiplier: float
    output_projection: bool
    mistakes: tuple[str, ...]
    rules: Rules
    positions: tuple[Position, ...]
    words: Mapping[str, str]
    has_given_weights: bool
    has_no_values: bool
    empty: str
    tiled: bool
    own: OwnForm | None = None
    failed: str = ""
    given_in: np.dtype[Any] = FLOAT64

    @property
    def member(self) -> Form:
        """The form that computes the variant: the user's own function if there is one, else the form named `form`."""
        return forms.form(self.form) if self.own is None else self.own.form

    @property
    def mistake(self) -> str:
        """The names of the mistakes joined by `+`, or `none`, for tables."""
        return "+".join(self.mistakes) or "none"

    @property
    def head(self) -> int:
        return self.heads.query

    @property
    def computed_in(self) -> np.dtype[Any]:
        """The dtype of the results: the coarsest of the dtypes of the problem, the form and the softmax."""
        form_dtype, softmax = self.member.computed_in(self.given_in), self.rules.softmax_dtype
        if softmax is None or self.member.reference != "logits" or self.has_given_weights:
            return form_dtype
        return forms.coarser(form_dtype, np.dtype(softmax))

    @property
    def plain(self) -> Settled:
        """The same variant in the plainest form that computes the same function, whatever its masks."""
        return replace(self, form=self.member.plainest, own=None)

    @property
    def exact(self) -> Settled:
        """The plain variant, with a softmax in the dtype of its input."""
        return replace(self.plain, rules=replace(self.rules, softmax_dtype=None))

    @property
    def question(self) -> Question:
        return Question(
            weights=self.member.reference,
            heads=self.heads,
            rules=self.rules,
            positions=self.positions,
            output_projection=self.output_projection,
            empty=self.empty,
            tiled=self.tiled,
        )

    @property
    def refused(self) -> str | None:
        """Why the form cannot compute these rules, or None if it can."""
        form = self.member
        if self.failed or (self.own is not None and self.mistakes):
            return self.failed or "mistake= changes the steps of the definition, but this form is your own code"
        if self.has_given_weights and form.mix is None:
            return f"form={self.form} starts from queries and keys, but this problem starts from given weights"
        if self.empty in SUBTRACTED and form.reference != "logits":
            return f"convention={self.words['convention']} changes logits, but form={self.form} computes no logits"
        if self.has_no_values and form.context_alone:
            return f"form={self.form} computes only the context, but this problem has no values"
        return None if forms.is_own(self.form) else forms.refuses(self.form, self.rules)


def baseline(config: Config, variants: Sequence[Settled]) -> Settled:
    """Return the variant of the baseline row: the variant that `against` names, if it can be computed.

    Otherwise return the first variant that can be computed.
    """
    runnable = [variant for variant in variants if not variant.refused]
    return next((variant for variant in runnable if variant.name == config.against), runnable[0])


Bind = Callable[[Settled, Mapping[str, Any], int], OwnForm]
"""Imports the function that a settled variant names as its form: `bind(settled, settings, seed)`. `settings` has all
settings of the variant by name, those that it pins and those that it takes from the run."""


def settle(name: str, variant: Variant, config: Config, problem: Problem, bind: Bind | None = None) -> Settled:
    """Return a variant with all settings filled in from the run, after checking that they fit the problem.

    If the command line names a user's function as the form, `bind` imports it. Without `bind`, nothing is imported.

    Raises:
        UserError: a form, rule or mistake is unknown, settings do not fit the problem, or a function cannot be imported
            or called.
    """
    if variant.form not in forms.names() and not is_code(variant.form):
        raise UserError(unknown(variant.form, forms.names(), f"variant.{name}.form"))
    settings = merge_settings(variant, config)
    for mistake in settings["mistake"]:
        mistakes.require_usable(mistake)
    # a variant that pins head but not kv_head has as many key/value heads as query heads
    kv_head = settings["kv_head"] if variant.head is None or variant.kv_head is not None else None
    head_counts = count_heads(settings["head"], kv_head, problem, config.kv_pool)
    size = 1 if problem.q is None else problem.q.shape[-1] // head_counts.query
    library = convention(settings["convention"])
    rules = make_rules(settings, library, choose_multiplier(settings["scale"], size), problem)
    positions = make_all("position", settings["position"])
    if misfit := next(filter(None, find_misfits(rules, positions, head_counts.query, size, problem)), None):
        raise UserError(misfit)
    refuse_overflow(rules, problem, settings["convention"])
    texts = {group: format_choices(group, settings[group], settings["mask_join"]) for group in SEPARATORS}
    settled = Settled(
        name=name,
        form=variant.form,
        heads=head_counts,
        scale=settings["scale"],
        multiplier=rules.scale,
        output_projection=variant.output_projection,
        mistakes=settings["mistake"],
        rules=rules,
        positions=positions,
        words=texts | {"convention": settings["convention"]},
        has_given_weights=problem.weights is not None,
        has_no_values=problem.v is None,
        empty=library.empty,
        tiled=library.tiled,
    )
    if bind is None or not isinstance(variant.form, Named):
        return settled
    own_form = bind(settled, settings, config.seed)
    takes_w_o = own_form.takes_output_projection and "W_o" in problem.projections
    return replace(settled, own=own_form, output_projection=variant.output_projection or takes_w_o)


def merge_settings(variant: Variant, config: Config) -> dict[str, Any]:
    pinned = {field.name: getattr(variant, field.name) for field in fields(variant)}
    return {name: getattr(config, name) if value is None else value for name, value in pinned.items()}


def choose_multiplier(scale: bool | float, size: int) -> float:
    """Return the multiplier of the scores: 1 / sqrt(d) if `scale` is true, 1 if it is false, and a number unchanged."""
    if isinstance(scale, bool):
        return 1 / math.sqrt(size) if scale else 1.0
    return scale


def make_rules(settings: Mapping[str, Any], library: Convention, scale: float, problem: Problem) -> Rules:
    """Return the rules that the settings name, as a library's convention reads them.

    Raises:
        UserError: settings of a rule are invalid, or the problem starts after the stage that a rule changes.
    """
    for group in ("mask", "score", "position"):
        if problem.weights is not None and settings[group]:
            names = "+".join(settings[group])
            raise UserError(f"{group}={names} changes logits, but this problem starts from given weights")
    if problem.weights is not None and settings["normalizer"] != Config.normalizer:
        raise UserError(f"normalizer={settings['normalizer']} has no effect: this problem starts from given weights")
    for name in settings["mask"] if problem.memory is not None else ():
        if issubclass(rule := rule_class("mask", name), Rule) and rule.one_sequence:
            raise UserError(f"mask={name} applies within one sequence, but the keys come from a memory; use mask=array")
    mask_rules = make_masks(settings["mask"], settings["mask_join"], library.blocks, problem.key_tokens)
    return Rules(
        scale=scale,
        masks=mask_rules,
        scores=make_all("score", settings["score"]),
        normalizer=normalizer(settings["normalizer"]),
        offset=find_offset(find_alignment(settings["align"], library, mask_rules, problem), mask_rules, problem),
        softmax_dtype=library.softmax_dtype,
        bend_last=library.caps_last,
    )


def find_alignment(setting: str | None, library: Convention, mask_rules: tuple[Mask, ...], problem: Problem) -> str:
    """Return how the first query is aligned with the keys: by the setting `align` if it is set, else by the library.

    `after_past` means that the library's masks count the tokens in a cache. `before_filler` means that the library
    aligns the last query with the last key before the padding (filler).
    """
    if setting is not None:
        return setting
    if library.cached and problem.past:
        return "after_past"
    has_filler = library.knows_filler and AllOf(mask_rules).unpadded(problem.keys) < problem.keys
    return "before_filler" if has_filler else library.align


def find_offset(align: str, mask_rules: tuple[Mask, ...], problem: Problem) -> int:
    rows, keys = len(problem.tokens), problem.keys
    before_filler = AllOf(mask_rules).unpadded(keys) - rows
    return {"top_left": 0, "after_past": problem.past, "before_filler": before_filler, "bottom_right": keys - rows}[
        align
    ]


def find_misfits(
    rules: Rules, positions: tuple[Position, ...], head_count: int, head_size: int, problem: Problem
) -> Iterator[str | None]:
    for rule in (*rules.masks, *rules.scores):
        yield rule.misfit(head_count, len(problem.tokens), problem.keys)
    for score in rules.scores if problem.q is not None else ():
        yield score.misfit_size(head_size)
    if not rules.normalizer.takes_extra and any(rule.extra(0) is not None for rule in rules.scores):
        yield f"normalizer={rules.normalizer.name} weighs each key independently, so score=sink would have no effect"
    for position in positions:
        if position.changes_x and problem.x is None:
            yield f"position={registry.name_of(position)} is added to x, but this problem has no x"
        yield position.misfit(head_size)


def refuse_overflow(rules: Rules, problem: Problem, convention: str) -> None:
    if rules.softmax_dtype is None or problem.q is None:
        return
    q, k, v = (0.0 if side is None else float(np.abs(side).max()) for side in (problem.q, problem.k, problem.v))
    largest = max(q * k * problem.q.shape[1] * abs(rules.scale), v * problem.keys)
    if largest > float(np.finfo(rules.softmax_dtype).max):
        raise UserError(
            f"the input is too large for convention={convention}, which computes in {np.dtype(rules.softmax_dtype)}: "
            f"logits or outputs may be as large as {largest:.1e}; scale the input down"
        )


SEPARATORS = {"mask": " {mask_join} ", "score": " + ", "position": " + "}


def format_choices(group: str, choices: Mapping[str, Any], mask_join: str) -> str:
    """Format a group's choices for a table: `window(left=2, right=0) and padding(lengths=3)`, or `none`."""
    arguments = {
        name: ", ".join(f"{key}={shown(value)}" for key, value in effective_settings(group, name, settings).items())
        for name, settings in choices.items()
    }
    calls = (f"{name}({settings})" if settings else name for name, settings in arguments.items())
    return SEPARATORS[group].format(mask_join=mask_join).join(calls) or "none"
