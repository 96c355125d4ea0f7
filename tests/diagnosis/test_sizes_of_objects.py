"""Objects that were made for heads of one size, and methods that are told more than q, k and v."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.calling.call import size_of_head


class OverAll:
    """One softmax over all places; what scores are divided by is its own."""

    def __init__(self, d_k: int) -> None:
        self.d_k = d_k

    def compute(self, q: Any, k: Any, v: Any) -> Any:
        powers = np.exp(q @ k.T / np.sqrt(self.d_k))
        return powers / powers.sum() @ v


class ByTemperature:
    def __init__(self, temperature: float = 2.0) -> None:
        self.temperature = temperature

    def forward(self, query: Any, key: Any, value: Any) -> Any:
        powers = np.exp(query @ key.T / self.temperature)
        return powers / powers.sum() @ value


class Told:
    """What it divides by is an argument."""

    def attend(self, query: Any, key: Any, value: Any, d_k: int) -> Any:
        powers = np.exp(query @ key.T / np.sqrt(d_k))
        return powers / powers.sum() @ value


@pytest.mark.parametrize(
    "attention",
    [Told().attend],
)
def test_the_scale_of_an_object_is_that_of_the_size_it_was_made_for(attention: Any) -> None:
    assert attn_exp.check(attention).mistakes == ("softmax_over_all",)


def test_the_size_of_a_head_is_read_off_what_an_object_holds() -> None:
    assert [size_of_head(OverAll(12)), size_of_head(ByTemperature(4.0)), size_of_head(Told())] == [12, 16, 0]
    assert size_of_head(ByTemperature(2.1)) == 0
