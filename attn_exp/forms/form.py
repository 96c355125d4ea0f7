"""The contract of a form: a way to compute attention, and the facts that a run needs about it."""

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


def refuse_nothing(rules: Rules) -> str | None:
    return None


@dataclass(frozen=True)
class Form:
    """One way to compute attention: a pure function and its properties.

    - `attend`: `(q, k, v, rules) -> Trace`, with `q` `[... h t d]`, `k` `[... g s d]`, `v` `[... g s e]` or None.
    - `refuses`: returns in one line why the form cannot compute these rules, or None if it can.
    - `dtype`: the widest type that it computes in; wider inputs are rounded to it.
    - `matrices`: how many arrays `[h t s]` it holds at once; by default all five stages.
    - `library`: the library that computes it, if that is not NumPy or Python itself.
    - `mix`: adds the context to a trace that starts from given weights; None if the form cannot start there.
    - `bends_last`: whether it can apply elementwise score rules after masking.
    - `context_alone`: whether it returns only the context, so that it needs values.
    - `takes_rows`: whether `attend` takes `rows`, the maximum number of queries in a block.
    - `divides_last`: whether it sums powers times values before dividing by the sum of the powers, so that powers too
      small for its type may be lost; tests then allow for them.
    - `leaks`: why values at masked keys can reach its output; without it, a form promises that they cannot.
    - `summarize`: `attend` with a summary of weights that the form never holds in full; its argument `tell` receives
      the fraction done.
    - `complete`: `attend` with the full weights, if the form does not have them anyway, and the same `tell`.
    - `stacked`: `attend` for several problems at once, `[n 1 h t d]`, bit-identical to computing each alone; sweeps use
      it for plain rules. Without it, problems are computed one after another.
    - `reference`: which reference applies: `logits` through a normalizer, or `kernel`.
    - `plainest`: the name of the plainest form that computes the same function under any mask.
    """

    attend: Callable[..., Trace]
    refuses: Callable[[Rules], str | None] = refuse_nothing
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
        """Return `attend`, `complete` or `summarize`, whichever keeps what the setting `weights` asks for.

        `full` keeps all weights; `auto` and `blocks` keep a summary of them.
        """
        attend = self.complete if weights == "full" else self.summarize
        return self.attend if attend is None else functools.partial(attend, tell=tell)

    def computed_in(self, dtype: Any = np.float64) -> np.dtype[Any]:
        """Return the dtype that the form computes in for an input dtype: the input's, or its own if that is coarser.

        Units in the last place, and whether two outputs differ only by rounding, are judged in this dtype.
        """
        return np.dtype(dtype) if self.dtype is None else coarser(np.dtype(dtype), np.dtype(self.dtype))


def coarser(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    return one if one.itemsize <= other.itemsize else other
