"""The attention sink: an extra logit without a key. It takes weight that no key should get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.kinds import NUMBER, one_or_several
from attn_exp.rules.example import Example
from attn_exp.rules.scores.score import Score


@dataclass(frozen=True)
class Sink(Score):
    """Adds an extra logit per head to the normalizer; it has no value vector, so a row's weights sum to less than 1.

    `logit` is one number, or one per head. With 0 this is "softmax plus one", `exp(l_j) / (1 + sum exp(l))`.

    Source: Miller 2023, "Attention Is Off By One"; Xiao et al. 2024, "Efficient Streaming Language Models with
    Attention Sinks", section 3.3; per head and learned in gpt-oss.
    """

    logit: Annotated[Sequence[float] | float, one_or_several(NUMBER, "a finite number, or a list of one per head")] = (
        0.0
    )

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        count = np.size(self.logit)
        return None if count in (1, heads) else f"sink: {count} logits; expected 1, or one per head ({heads})"

    def extra(self, head: Array | int) -> Any:
        logits = np.ravel(np.asarray(self.logit, np.float64))
        return logits[np.asarray(head) % len(logits)]


EXAMPLE = Example(
    settings={"logit": [0.5, -1.5]},
    heads=2,
    head=1,
    given=((3.0, 4.0),),
    outcome=((3.0, 4.0, -1.5),),
    outside=Example(
        settings={},
        given=((-2.0, -3.0, -4.0),),
        outcome=((-2.0, -3.0, -4.0, 0.0),),
        source="Miller 2023: the one in exp(x_i) / (1 + sum exp(x_j)) is exp(0)",
    ),
)
