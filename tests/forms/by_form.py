"""What tests may ask of a form: as many digits as the type that it computes in holds, and nothing of one not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attn_exp import forms
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.rules import Rules

UNITS = 64
"""Rounding errors that add up in small problems with logits of ordinary size."""


def tolerance(form: str, in_float64: float, logits: float = 1.0) -> float:
    """Return what a test asks for in float64, or `UNITS` relative roundings where the form's type is coarser.

    An error of logits of some size is as many times larger, and reaches the weights as it is.
    """
    kind = forms.form(form).computed_in()
    coarse = UNITS * float(np.finfo(kind).eps) * max(1.0, logits)
    return in_float64 if kind == np.float64 else max(in_float64, coarse)


def largest_logit(q: NDArray[Any], k: NDArray[Any]) -> float:
    """Return a bound of the logits before they are scaled."""
    return float(np.abs(q).max() * np.abs(k).max() * q.shape[-1])


def skip_where_missing(form: str) -> None:
    """Skip the test where the form's library is not installed."""
    reason = forms.refuses(form, Rules(masks=(Causal(),))) or ""
    if "is not installed" in reason:
        pytest.skip(reason)
