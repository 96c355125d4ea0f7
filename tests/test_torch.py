"""Held to PyTorch: rules and attention on random shapes, masks and extremes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attn_exp.normalizers import NORMALIZERS
from attn_exp.rules.t5 import bucket

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")


def published_bucket(relative: Any, bidirectional: bool, buckets: int, distance: int) -> Any:
    """The bucket in torch's float32, step by step as T5's paper tells it."""
    result = torch.zeros_like(relative)
    if bidirectional:
        buckets //= 2
        result, relative = (relative > 0).long() * buckets, relative.abs()
    else:
        relative = (-relative).clamp(min=0)
    exact = buckets // 2
    far = exact + (torch.log(relative.float() / exact) / math.log(distance / exact) * (buckets - exact)).long()
    return result + torch.where(relative < exact, relative, far.clamp(max=buckets - 1))


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (16, 64), (8, 100)])
def test_t5_buckets(bidirectional: bool, buckets: int, distance: int) -> None:
    ahead = np.arange(-300, 301)
    expected = published_bucket(torch.from_numpy(ahead), bidirectional, buckets, distance).numpy()
    np.testing.assert_array_equal(bucket(ahead, buckets, distance, bidirectional), expected)


def test_sigmoid_is_torchs() -> None:
    given = np.array([-800.0, -3.0, 0.0, 0.5, 800.0, -np.inf])
    np.testing.assert_allclose(NORMALIZERS["sigmoid"](given, None), torch.sigmoid(torch.from_numpy(given)), rtol=1e-15)
