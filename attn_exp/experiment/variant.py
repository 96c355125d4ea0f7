"""A settled variant of a run, and the question that the reference answers for it."""

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
    """A function of the user's own, found and ready to be called, as a run sees it.

    The code that imports it and learns how to call it depends on this room, and comes in as a `Bind`.
    """

    @property
    def form(self) -> Form:
        """Its form."""

    @property
    def layer(self) -> bool:
        """Whether it takes x and the matrices of a layer instead of heads."""

    @property
    def takes_output_projection(self) -> bool:
        """Whether it is called with W_o, so that it returns the output of a layer."""

    @property
    def own(self) -> OwnFunction:
        """The function, and where it comes from."""

    @property
    def bind(self) -> Bind:
        """Finds it again, for a variant with other settings."""

    def whole(self, question: Question, problem: Problem, *, usual: bool) -> Trace:
        """Compute a problem from x; `usual` says that scores are divided by `sqrt(d)`."""

    def judge(self, heads: Heads) -> Verdict:
        """Check it under the settings of its variant, which has these heads."""


@dataclass(frozen=True)
class Settled:
    """A variant with every setting filled in.

    `own`: the user's own function, if the form is one that may be run; `failed`: why that gave no answer.
    `given_in`: the dtype of the problem's numbers.
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
        """The form that computes it: the user's own function if there is one, else the form of that name."""
        return forms.form(self.form) if self.own is None else self.own.form

    @property
    def mistake(self) -> str:
        """The names of its mistakes, as a table shows them."""
        return "+".join(self.mistakes) or "none"

    @property
    def head(self) -> int:
        return self.heads.query

    @property
    def computed_in(self) -> np.dtype[Any]:
        """The coarsest dtype that it rounds to: that of the problem, of its form, or of its softmax."""
        form, softmax = self.member, self.rules.softmax_dtype
        own = form.computed_in(self.given_in)
        softens = softmax is not None and form.reference == "logits" and not self.starts_late
        return forms.coarser(own, np.dtype(softmax)) if softens else own

    @property
    def plain_form(self) -> str:
        """The plainest form that computes the same function, whatever the masks."""
        return self.member.plainest

    @property
    def plain(self) -> Settled:
        return replace(self, form=self.plain_form, own=None)

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
            return self.failed or "mistake= changes the steps of the definition, and this form is your own code"
        if self.starts_late and form.mix is None:
            return f"form={self.form} starts at queries and keys, and this problem at given weights"
        if self.ends_early and form.context_alone:
            return f"form={self.form} computes the context alone, and this problem has no values"
        return None if forms.is_own(self.form) else forms.refuses(self.form, self.rules)


def baseline(config: Config, variants: Sequence[Settled]) -> Settled:
    """Return the variant that all others are compared with: the one that `against` names, else the first.

    If it cannot be computed, it is the first one that can.
    """
    can = [variant for variant in variants if not variant.refused]
    return next((variant for variant in can if variant.name == config.against), can[0])


Bind = Callable[[Settled, Mapping[str, Any], int], OwnForm]
"""Imports the function that a settled variant names as its form: `bind(settled, settings, seed)`, where `settings` are
the variant's own, or the run's if it pins none."""
