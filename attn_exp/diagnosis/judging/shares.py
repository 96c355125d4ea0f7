"""What holds of a layer that fits no definition: the values are averaged, with weights that sum to 1."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.judging.bound_layers import Seen
from attn_exp.diagnosis.locate.products import find_axes
from attn_exp.diagnosis.locate.recording import Recording
from attn_exp.experiment.verdict import HELD, Finding, Verdict, unfinished
from attn_exp.own_code import OwnFunction


def leave_open(own: OwnFunction, seen: Seen, words: str, reason: str) -> Verdict:
    """Return an open verdict on a layer whose attention the definition does not describe, for a reason."""
    if not any(is_mean(seen.recording, place) for place in range(len(seen.recording.first.operations))):
        return unfinished(own.name, reason, words)
    left = (f"`scores` ({reason})", "`projections` before and after (nothing says what they should be)")
    computes, found = "means of values, with weights that sum to 1", (Finding("weights sum to 1", HELD),)
    return Verdict(own.name, True, (), computes, found, words, not_verified=left)


def is_mean(recording: Recording, place: int) -> bool:
    """Return whether an operation multiplies by weights that depend on the tokens and sum to 1 over the summed axis."""
    operation = recording.first.operations[place]
    live = [at for at in range(len(operation.inputs)) if recording.is_live(place, at)]
    axes, product = find_axes(operation), operation.product
    if axes is not None and product is not None:
        sides = ((product.left, axes.left), (product.right, axes.right))
        return any(sum_to_one(arrange(operation.inputs[at]), -1) for at, arrange in sides if at in live)
    is_summed = any(place in one.producers and "sum" in one.name for one in recording.first.operations)
    return operation.name.startswith("mul") and is_summed and any(
        sum_to_one(operation.inputs[at], axis) for at in live for axis in range(operation.inputs[at].ndim))  # fmt: skip


def sum_to_one(weights: Array, axis: int) -> bool:
    """Return whether an array holds no negative number and sums to 1 along an axis."""
    return weights.shape[axis] > 1 and bool((weights >= 0).all()) and np.allclose(weights.sum(axis=axis), 1, atol=1e-5)
