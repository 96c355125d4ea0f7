"""What a form is: one way to compute attention, and what a run has to know of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp.forms.steps import add_context

if TYPE_CHECKING:
    from attn_exp.forms.trace import Trace
    from attn_exp.rules.rules import Rules


def nothing(rules: Rules) -> str | None:
    """Refuse nothing."""
    return None


@dataclass(frozen=True)
class Form:
    """How attention is computed: a pure function, and what is special about it.

    - `attend`: `(q, k, v, rules) -> Trace`, with `q` `[... h t d]`, `k` `[... g s d]`, `v` `[... g s e]` or None.
    - `refuses`: why the form cannot compute these rules, in one line, or None where it can.
    - `dtype`: the widest type that it computes in; wider inputs are rounded to it.
    - `matrices`: how many arrays `[h t s]` it holds at once: all five stages unless it says otherwise.
    - `library`: what computes it, where that is not NumPy or Python itself.
    - `mix`: adds the context to a trace that starts at given weights; None where the form cannot start there.
    - `bends_last`: whether it can bend logits after masking them.
    - `context_alone`: whether it forms the context and nothing else, so that it needs values.
    - `takes_rows`: whether `attend` has a setting `rows`, the most queries in a block.
    - `divides_last`: whether it sums powers times values before it divides by the sum of the powers, so that powers too
      small for its type may be lost; tests then allow for them.
    - `leaks`: why what masked keys hold can reach its answer; forms without it promise that it cannot.
    - `summarize`: `attend` with the summary of weights that the form never has whole, and a `tell` that hears how far
      it is.
    - `complete`: `attend` with the whole weights, where the form does not have them anyway, and the same `tell`.
    - `stacked`: `attend` for several problems at once, `[n 1 h t d]`, where it gives each of them the very bits that
      it gets alone; sweeps ask it for plain rules. Without it they are computed one after another.
    - `reference`: what the reference is asked for: `logits` through a normalizer, or `kernel`.
    - `plainest`: the name of the plainest form that computes the same function, whatever the masks.
    """

    attend: Callable[..., Trace]
    refuses: Callable[[Rules], str | None] = nothing
    dtype: str | None = None
    matrices: int = 5
    library: str | None = None
    mix: Callable[[Trace], Trace] | None = add_context
    bends_last: bool = False
    context_alone: bool = False
    takes_rows: bool = False
    divides_last: bool = False
    leaks: str | None = None
    summarize: Callable[..., Trace] | None = None
    complete: Callable[..., Trace] | None = None
    stacked: Callable[..., Trace] | None = None
    reference: str = "logits"
    plainest: str = "matrix"

    def keeping(self, weights: str, tell: Callable[[float], None] | None = None) -> Callable[..., Trace]:
        """Return `attend`, or the function that keeps of the weights what `weights` asks for.

        `full` asks for all of them, `auto` and `blocks` for what they look like.
        """
        keeper = self.complete if weights == "full" else self.summarize
        return self.attend if keeper is None else functools.partial(keeper, tell=tell)

    def computed_in(self, given: Any = np.float64) -> np.dtype[Any]:
        """Return the type that the form computes numbers of a given type in: theirs, or its own where that is coarser.

        Units in the last place, and whether two answers differ by rounding alone, are judged in this type.
        """
        return np.dtype(given) if self.dtype is None else coarser(np.dtype(given), np.dtype(self.dtype))


def coarser(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    """Return the one of two types of numbers that has fewer digits."""
    return one if one.itemsize <= other.itemsize else other
