"""The soft-cap: no logit passes a bound, and small ones hardly change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.rules.scores.score import Score
from attn_exp.rules.settings import is_number


@dataclass(frozen=True)
class Softcap(Score):
    """`logit = cap tanh(logit / cap)`, after the scale and before biases and masks.

    ONNX up to 1.21 capped after masking, which turns -inf into -cap and leaks weight to masked keys.

    Source: Gemma Team 2024, "Gemma 2", section 2, "Logit soft-capping".
    """

    cap: float = 30.0

    def __post_init__(self) -> None:
        if not is_number(self.cap) or not 0 < self.cap < math.inf:
            raise ValueError(f"softcap cap={self.cap}: expected a number above 0")

    def bend(self, logits: Any) -> Any:
        kind = getattr(logits, "dtype", np.dtype(np.float64)).type
        return np.tanh(logits / kind(self.cap)) * kind(self.cap)

    def bound(self) -> float:
        return self.cap
