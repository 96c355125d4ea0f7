"""The contract of a form: a way to compute attention, and the properties that a run needs to know."""

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
    - `matrices`: the number of arrays `[h t s]` in memory at once; by default 5, the stages from `scores` to `weights`.
    - `library`: the library that computes it, if that is not NumPy or Python itself.
    - `mix`: adds the context to a trace that starts from given weights; None if the form cannot start from weights.
    - `bends_last`: whether it can apply elementwise score rules after masking.
    - `context_alone`: whether its trace has no stage except the context; such a form needs values.
    - `takes_rows`: whether `attend` takes `rows`, the maximum number of queries in a block.
    - `divides_last`: whether it multiplies exponentials by values first, and divides by the sum of the exponentials
      last. Exponentials too small for its type may then be lost, which tests allow for.
    - `leaks`: why values at masked keys can reach its output; None promises that they cannot.
    - `summarize`: does what `attend` does, and adds a summary of the weights to the trace. Forms that never hold all
      weights have it. Its argument `tell` is a function that receives the fraction done.
    - `complete`: the same, but adds the full weights; it takes `tell` too.
    - `stacked`: does what `attend` does for several problems at once, `[n 1 h t d]`, with bit-identical results. Sweeps
      use it for plain rules. Without it, problems are computed one after another.
    - `reference`: how the reference computes the expected weights: from `logits` with a normalizer, or with a `kernel`.
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
        """Return the function that computes a trace with what the setting `weights` requests.

        `full` requests all weights, which `complete` adds. Other values request a summary of the weights, which
        `summarize` adds. A form without the needed function uses `attend`.
        """
        attend = self.complete if weights == "full" else self.summarize
        return self.attend if attend is None else functools.partial(attend, tell=tell)

    def computed_in(self, dtype: Any = np.float64) -> np.dtype[Any]:
        """Return the dtype in which the form computes: the input's dtype, or the form's own dtype if it is coarser.

        Whether two outputs differ only by rounding is judged in this dtype.
        """
        return np.dtype(dtype) if self.dtype is None else coarser(np.dtype(dtype), np.dtype(self.dtype))


def coarser(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    return one if one.itemsize <= other.itemsize else other
