"""The rows of a comparison: one variant in plain numbers, and how far two of them are apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One variant in plain numbers.

    `error` and `error_ulp` are against its own reference, over `checked` queries, in ulp of `computed_in`, the type
    that the form works in; `shift`, `cosine`, `sameness` and `parts_at` (see `Distance`) against the first row;
    `entropy` in nats, `effective_keys` and `largest_weight` are means over heads and queries. Where the form refuses
    the rules, `note` says why, `same_as` is empty and the numbers are NaN; so are those of stages never formed.
    """

    variant: str
    form: str
    head: int
    scale: bool | float
    multiplier: float
    bias: bool
    output_projection: bool
    mistake: str
    same_as: str
    error: float
    error_ulp: float
    checked: int
    shift: float
    cosine: float
    entropy: float
    effective_keys: float
    largest_weight: float
    row_sum_error: float
    flops: int
    kv_head: int = 0
    mask: str = "none"
    score: str = "none"
    position: str = "none"
    normalizer: str = "softmax"
    convention: str = "none"
    sameness: str = ""
    parts_at: str = ""
    note: str = ""
    computed_in: str = "float64"


@dataclass(frozen=True)
class Distance:
    """How far two variants are apart: the largest absolute difference and the cosine of their answers.

    `sameness` says how near the answers are, in the coarser of the types that they are computed in, `parts_at` which
    stage is the first to differ: in its bits where they compute the same function, beyond rounding where they do not.
    """

    variant: str
    other: str
    difference: float
    cosine: float
    sameness: str = ""
    parts_at: str = ""
