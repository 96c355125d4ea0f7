"""Named deviations from attention that real documents make, to be reproduced and told apart."""

from __future__ import annotations

from collections.abc import Callable

from attn_exp.forms.trace import Trace


def none(stages: Trace) -> Trace:
    """No deviation."""
    return stages


def weights_transposed(stages: Trace) -> Trace:
    """`context_j = sum_i weights_ij v_i`: each value is spread by its own query's weights instead of gathered.

    It is what `V @ A` computes where tokens are columns and the rows of A are queries; `V @ A.T` is meant. The columns
    of A do not sum to 1, so the result is no weighted mean of the values.
    """
    if stages.weights is None or stages.v is None:
        return stages
    return stages.replace(context=stages.weights.swapaxes(-1, -2) @ stages.v)


MISTAKES: dict[str, Callable[[Trace], Trace]] = {"none": none, "weights_transposed": weights_transposed}
