"""A variant of a run in which nothing follows the run any more, and what is asked about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from attn_exp import forms
from attn_exp.config.schema import Config
from attn_exp.problem.problem import Heads
from attn_exp.reference.oracle import Question
from attn_exp.rules.positions.position import Position
from attn_exp.rules.rules import Rules

if TYPE_CHECKING:
    from attn_exp.experiment.verdict import Verdict
    from attn_exp.forms.form import Form
    from attn_exp.forms.trace import Trace
    from attn_exp.own_code import OwnFunction
    from attn_exp.problem.problem import Problem


FLOAT64 = np.dtype(np.float64)


class OwnForm(Protocol):
    """A function of the user's own, found and ready to be called, as far as a run asks anything of it.

    What imports it and learns how it is called stands above this room, and comes in as a `Bind`.
    """

    @property
    def form(self) -> Form:
        """The form that it is."""

    @property
    def layer(self) -> bool:
        """Whether it takes x and the matrices of a layer, and not heads."""

    @property
    def takes_output_projection(self) -> bool:
        """Whether it is called with W_o, so that its answer is the output of a layer."""

    @property
    def own(self) -> OwnFunction:
        """The function, and where it comes from."""

    @property
    def bind(self) -> Bind:
        """What finds it once more, for a variant under other settings."""

    def whole(self, question: Question, problem: Problem, *, usual: bool) -> Trace:
        """Return what a function of x makes of a problem; `usual` says that scores are divided by `sqrt(d)`."""

    def judge(self, heads: Heads) -> Verdict:
        """Return what a check says of it under the settings of its variant, which has these heads."""


@dataclass(frozen=True)
class Settled:
    """A variant in which nothing follows the run any more.

    `own`: the user's own function, where the form is one that may be run; `failed`: why that gave no answer.
    `given_in`: the type of the problem's numbers.
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
    starts_late: bool
    ends_early: bool
    empty: str
    tiled: bool
    own: OwnForm | None = None
    failed: str = ""
    given_in: np.dtype[Any] = FLOAT64

    @property
    def member(self) -> Form:
        """What computes it: the user's own function where the command line names one, else the form of that name."""
        return forms.form(self.form) if self.own is None else self.own.form

    @property
    def mistake(self) -> str:
        """The names of its mistakes, as a table shows them."""
        return "+".join(self.mistakes) or "none"

    @property
    def head(self) -> int:
        """How many query heads there are."""
        return self.heads.query

    @property
    def computed_in(self) -> np.dtype[Any]:
        """The coarsest type that it rounds to: that of the problem, of its form, or of its softmax."""
        form, softmax = self.member, self.rules.softmax_dtype
        own = form.computed_in(self.given_in)
        softens = softmax is not None and form.reference == "logits" and not self.starts_late
        return forms.coarser(own, np.dtype(softmax)) if softens else own

    @property
    def plain_form(self) -> str:
        """The name of the plainest form that computes its function, whatever the masks."""
        return self.member.plainest

    @property
    def plain(self) -> Settled:
        """The variant in the plainest form that computes its function."""
        return replace(self, form=self.plain_form, own=None)

    @property
    def exact(self) -> Settled:
        """The plain variant, in which no softmax rounds to a type of its own."""
        return replace(self.plain, rules=replace(self.rules, softmax_dtype=None))

    @property
    def question(self) -> Question:
        """What the reference is asked to check it."""
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
        """Why the form cannot compute these rules, or None where it can."""
        form = self.member
        if self.failed or (self.own is not None and self.mistakes):
            return self.failed or "mistake= changes the definition's own steps, and this form is code of your own"
        if self.starts_late and form.mix is None:
            return f"form={self.form} starts at queries and keys, and this problem at given weights"
        if self.ends_early and form.context_alone:
            return f"form={self.form} computes the context alone, and this problem has no values"
        return None if forms.is_own(self.form) else forms.refuses(self.form, self.rules)


def baseline(config: Config, variants: Sequence[Settled]) -> Settled:
    """Return the variant that all others are compared with: the one that `against` names, else the first.

    One that could not be computed gives way to the first that could.
    """
    can = [variant for variant in variants if not variant.refused]
    return next((variant for variant in can if variant.name == config.against), can[0])


Bind = Callable[[Settled, Mapping[str, Any], int], OwnForm]
"""Imports the function that a settled variant names as its form: `bind(settled, settings, seed)`, where `settings` are
those of the variant, or of the run where it pins none."""
