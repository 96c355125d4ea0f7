"""Blocks of whole rows of logits: what every normalizer but softmax needs, and rounding to a type of its own."""

from __future__ import annotations

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms._blocks.asked import extras
from attn_exp.forms._blocks.block import Sums, forbid, logits, mix
from attn_exp.forms._blocks.operands import Block
from attn_exp.forms._blocks.tasks import Run


def weigh(block: Block) -> Array:
    """Return the weights of whole rows `[b g r t s]`, by any normalizer, in the type that the rules ask for."""
    return weighed(block, whole_logits(block))


def whole_logits(block: Block) -> Array:
    """Return the masked logits of whole rows `[b g r t s]`, in the type that the rules ask for."""
    keys = block.whole.shape.keys
    run = Run(0, keys, ((0, keys),))
    tile = logits(block, run)
    forbid(block, run, tile)
    return tile.mT.astype(block.whole.softmax_dtype, copy=False)


def weighed(block: Block, masked: Array) -> Array:
    """Return the weights of masked logits `[b g r t s]`."""
    given = extras(block)
    shared = None if given is None else given.astype(masked.dtype)
    return block.whole.rules.normalizer.weigh(masked, shared).astype(block.q.dtype, copy=False)


def whole_rows(block: Block) -> Sums:
    """Return the sums of whole rows of weights."""
    masked = whole_logits(block)
    return summed(block, masked, mix(weighed(block, masked).mT, block.v))


def summed(block: Block, masked: Array, context: Array) -> Sums:
    """Return a finished context as sums, with a total of 1; under softmax the anchor is the whole log-sum-exp."""
    total = np.ones(context.shape[:-1], context.dtype)
    if not block.whole.rules.normalizer.exponential:
        return Sums(context, total, None)
    top = masked.max(axis=-1, initial=-np.inf)
    powers = np.exp(masked - np.where(np.isneginf(top), 0, top)[..., None])
    return Sums(context, total, np.log(powers.sum(axis=-1)) + top)
