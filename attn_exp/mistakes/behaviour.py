"""Mistakes in behaviour: between calls, between the examples of a batch, at block boundaries, and with NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attn_exp.arrays import Array, draw
from attn_exp.forms.pipeline import Setup, Step
from attn_exp.mistakes.mistake import Change, Mistake, around, instead
from attn_exp.mistakes.softmax import softmax_over

DROPPED = 0.1
"""The fraction of weights that the setting `mistake=dropout_on` drops."""


def drop_weights(after: Step, setup: Setup, weights: Array, allowed: Array) -> Array:
    # the drawn numbers lie between -1 and 1, so a fraction DROPPED of them lies below 2 * DROPPED - 1
    is_kept = draw(0, "dropout", "uniform", weights.shape) > 2 * DROPPED - 1
    return np.asarray(after(setup, weights, allowed) * is_kept / (1 - DROPPED))


def share_first_example(share: Step, setup: Setup, heads: Array) -> Array:
    shared = share(setup, heads)
    return np.broadcast_to(shared[:1], shared.shape)


def show_first_keys(count: Callable[[int], int]) -> Change:

    def allowed(step: Step, setup: Setup) -> Any:
        return step(setup) & (np.arange(setup.keys) < count(setup.keys))

    return around("allowed", allowed)


def drop_partial_block(block: int) -> Change:
    return show_first_keys(lambda keys: keys // block * block)


def fill_empty_rows_with_nan(normalize: Step, setup: Setup, masked: Array) -> Array:
    return np.where(np.isneginf(masked).all(axis=-1, keepdims=True), np.nan, normalize(setup, masked))


MISTAKES = {
    "dropout_on": Mistake(
        says="Dropout is on: each call zeroes different weights and scales up the rest; or only the scaling remains.",
        fix="switch dropout off outside training, as model.eval() does",
        seen="PyTorch issues 99293 and 124464; nanoGPT PR 240",
        stage="weights",
        changes=(
            around("after", drop_weights),
            *(
                around("after", lambda after, setup, weights, allowed, kept=kept: after(setup, weights, allowed) / kept)
                for kept in (0.9, 0.8, 0.7, 0.5, 0.95)
            ),
        ),
        of_code=True,
    ),
    "not_deterministic": Mistake(
        says="The same call gives different answers.",
        fix="look for atomic adds, uninitialized memory or random numbers",
        seen="kernels with atomic adds; reads of uninitialized memory",
        stage="output",
    ),
    "changes_inputs": Mistake(
        says="The function modifies its inputs.",
        fix="work on copies; do not use += or out= on the inputs",
        seen="q *= scale; an in-place mask in a notebook cell that is run twice",
        stage="q",
    ),
    "reuses_output": Mistake(
        says="A second call overwrites the first answer: both share the same memory.",
        fix="return a new array on each call",
        seen="a buffer kept between calls",
        stage="output",
    ),
    "gradients_cut": Mistake(
        says="No gradient reaches its inputs: the output is detached from them, so nothing is learned.",
        fix="do not use detach, .data, torch.tensor(...) or NumPy between inputs and output",
        seen="q = torch.tensor(q) in the function; weights.detach() made for a plot and used afterwards",
        stage="output",
    ),
    "batch_mixed": Mistake(
        says="The examples of a batch see each other: an output depends on the other examples.",
        fix="do not sum or apply a softmax over the batch",
        seen="batch and sequence swapped: AEMatter issue 3, OmDet issue 19",
        stage="weights",
        changes=(
            softmax_over(0),
            around("share", share_first_example),
            around("share", lambda share, setup, heads: np.roll(share(setup, heads), 1, axis=0)),
        ),
        needs=("batch",),
        of_code=True,
    ),
    "keys_cut_to_queries": Mistake(
        says="Keys are truncated to the number of queries: if there are more keys, the later ones are dropped.",
        fix="take the number of keys from k, not from q",
        seen="k[..., :q.shape[-2], :]; one length used for both",
        stage="weights",
        changes=(around("allowed", lambda step, setup: step(setup) & (np.arange(setup.keys) < setup.rows)),),
        of_code=True,
    ),
    "mask_stale": Mistake(
        says="The mask of an earlier call is reused.",
        fix="do not keep a mask between calls, or rebuild it when a different one is passed",
        seen="a mask or a length stored by the first call; LLMs-from-scratch, the mask kept with a cache",
        stage="masked",
    ),
    "tail_dropped": Mistake(
        says="The last keys are dropped if the number of keys is not a multiple of the block size.",
        fix="process the last, shorter block, and mask positions beyond the last key",
        seen="triton issue 2626; jax issue 27224; lightning-attention PR 28",
        stage="weights",
        changes=(
            *(drop_partial_block(block) for block in (2, 3, 4, 5, 8, 16, 32, 64, 128)),
            show_first_keys(lambda keys: keys - 1),  # only the last key, as in a loop that ends one step early
        ),
    ),
    "nan_leaks": Mistake(
        says="NaN behind the mask reaches the answer, because 0 times NaN is NaN.",
        fix="replace hidden values with zeros before the product",
        seen="PyTorch issue 101967; PyTorch's scaled_dot_product_attention itself",
        stage="context",
        changes=(instead(mix=lambda setup, weights, v, k: weights @ v),),
        needs=("mask",),
        remark=True,
    ),
    "empty_row_nan": Mistake(
        says="A query that may see no key gets NaN instead of zeros.",
        fix="return zero weights for a row of -inf",
        seen="PyTorch issues 41508 and 103749, before its safe softmax",
        stage="weights",
        changes=(around("normalize", fill_empty_rows_with_nan),),
        needs=("mask",),
        remark=True,
    ),
}
