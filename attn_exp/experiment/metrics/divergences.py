"""How far two computations are apart: their numbers, and their rows of weights as distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.experiment.metrics.metrics import cosine

Array = NDArray[Any]


def mean_error(answer: Array, expected: Array) -> float:
    """Return `mean |x - ref|`. Source: PyTorch, `test/inductor/test_flex_attention.py`, compares means."""
    return float(np.abs(answer - expected).mean())


def rms_error(answer: Array, expected: Array) -> float:
    """Return `sqrt(mean (x - ref)^2)`. Source: Shah et al. 2024, "FlashAttention-3", table 3."""
    return float(np.sqrt(np.mean((answer - expected) ** 2)))


def relative_rms(answer: Array, expected: Array) -> float:
    """Return `rms(x - ref) / (rms(ref) + 1e-8)`. Source: fla-org/flash-linear-attention, `fla/utils`."""
    return rms_error(answer, expected) / (float(np.sqrt(np.mean(np.asarray(expected) ** 2))) + 1e-8)


CLOSE = {"float16": (1e-3, 1e-3), "bfloat16": (1.6e-2, 1e-3), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""Relative and absolute tolerances of `torch.testing.assert_close` by type."""


def close(answer: Array, expected: Array, dtype: str = "float64") -> bool:
    """Say whether `|x - ref| <= atol + rtol |ref|` everywhere. Source: `torch.testing.assert_close`, its defaults."""
    relative, absolute = CLOSE[dtype]
    return bool((np.abs(answer - expected) <= absolute + relative * np.abs(expected)).all())


def kl(p: Array, q: Array) -> Array:
    """Return `sum_j p_j ln(p_j / q_j)` of each row, in nats; infinite where q gives nothing to a key of p's.

    Source: Kullback and Leibler 1951, "On Information and Sufficiency".
    """
    with np.errstate(divide="ignore"):
        logs = np.log(np.where(p > 0, p, 1)) - np.log(np.where(p > 0, q, 1))
    return np.asarray(np.where(p > 0, p * logs, 0.0).sum(axis=-1))


def js(p: Array, q: Array) -> Array:
    """Return `(kl(p, m) + kl(q, m)) / 2` of each row with m their mean: 0 to ln 2.

    Source: Lin 1991, "Divergence Measures Based on the Shannon Entropy"; between heads: Clark et al. 2019, section 6.
    """
    middle = (p + q) / 2
    return (kl(p, middle) + kl(q, middle)) / 2


def total_variation(p: Array, q: Array) -> Array:
    """Return `sum_j |p_j - q_j| / 2` of each row: 0 to 1.

    Source: Jain and Wallace 2019, "Attention is not Explanation", section 3.
    """
    return np.asarray(np.abs(p - q).sum(axis=-1) / 2)


def row_cosine(answer: Array, expected: Array) -> Array:
    """Return the cosine of each row of two outputs `[t m]`. Source: Zhang et al. 2025, "SageAttention", section 4.1."""
    return np.array([cosine(one, other) for one, other in zip(answer, expected, strict=True)])


def head_divergence(weights: Array) -> float:
    """Return the mean Jensen-Shannon divergence between every two heads: 0 where all heads do the same.

    Source: Clark et al. 2019, "What Does BERT Look At?", section 6; NaN for a single head.
    """
    pairs = [(one, other) for place, one in enumerate(weights) for other in weights[place + 1 :]]
    return float(np.mean([js(*pair).mean() for pair in pairs])) if pairs else float("nan")
