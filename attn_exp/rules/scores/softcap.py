"""The soft-cap: logits are bounded, but small logits hardly change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.config.kinds import PositiveFloat
from attn_exp.rules.example import Example
from attn_exp.rules.scores.score import Score


@dataclass(frozen=True)
class Softcap(Score):
    """`logit = cap tanh(logit / cap)`, after the scale and before biases and masks.

    ONNX up to 1.21 applied the cap after masking. This turns -inf into -cap, so masked keys get weight.

    Source: Gemma Team 2024, "Gemma 2", section 2, "Logit soft-capping".
    """

    cap: PositiveFloat = 30.0

    def bend(self, logits: Any) -> Any:
        scalar_type = getattr(logits, "dtype", np.dtype(np.float64)).type
        return np.tanh(logits / scalar_type(self.cap)) * scalar_type(self.cap)

    def bound(self) -> float:
        return self.cap


EXAMPLE = Example(
    settings={"cap": 2.0},
    given=((0.0, 2.0, -2.0, 2000.0),),
    outcome=((0.0, 1.523188311911530, -1.523188311911530, 2.0),),  # 2 tanh(1) = 2 (e^2 - 1) / (e^2 + 1)
    outside=Example(
        settings={"cap": 50.0},
        given=((50.0,),),
        outcome=((38.07970780,),),
        decimals=7,
        source="Gemma Team 2024, section 2: soft_cap tanh(logits / soft_cap) with 50; tanh 1 from DLMF, section 4.29",
    ),
)
