"""The order of tokens, heads and blocks must not matter where no rule looks at it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attn_exp.experiment.checks._invariants.case import Answer, Case, looks_at_heads, looks_at_places


def token_order(case: Case) -> Answer:
    """Tokens in another order give the same outputs in that order, where neither masks nor scores look at places."""
    if case.rules.masks or looks_at_places(case) or case.settled.positions:
        return "rules look at places"
    if case.q.shape[1] != case.k.shape[1]:
        return "queries and keys are not the same tokens"
    order = np.random.default_rng(0).permutation(case.q.shape[1])
    shuffled = replace(case, q=case.q[:, order], k=case.k[:, order], v=case.v[:, order])
    return shuffled.compute(), case.compute()[:, order]


def head_order(case: Case) -> Answer:
    """Heads in another order give the same outputs in that order, where no rule differs between heads."""
    if len(case.q) == 1:
        return "one head has no order"
    if len(case.q) != len(case.k):
        return "heads share keys and values"
    if looks_at_heads(case):
        return "rules differ between heads"
    turned = replace(case, q=case.q[::-1], k=case.k[::-1], v=case.v[::-1])
    return turned.compute(), case.compute()[::-1]


def block_size(case: Case) -> Answer:
    """The answer does not depend on how many queries a block holds."""
    if not case.settled.member.takes_rows:
        return "the form has no blocks"
    sizes = [size for size in (1, 2, 3, case.q.shape[1]) if size <= case.q.shape[1]]
    return np.stack([case.compute(rows=size) for size in sizes]), np.stack([case.compute()] * len(sizes))
