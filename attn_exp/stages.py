"""The named stages of one attention computation."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attn_exp.rules.rule import Array


@dataclass(frozen=True)
class Trace:
    """Every stage of one computation, in order; None where a form never forms it.

    | stage | shape | meaning |
    | --- | --- | --- |
    | `q`, `k`, `v` | `[h t d]`, `[g s d]`, `[g s e]` | queries, keys, values, split into heads |
    | `scores` | `[h t s]` | `q k^T` |
    | `logits` | `[h t s]` | scores times the scale |
    | `capped` | `[h t s]` | logits after rules that bend each logit by itself, such as a soft-cap |
    | `masked` | `[h t s]` | capped plus biases, -inf where no query may look |
    | `weights` | `[h t s]` | the normalized logits; a row sums to 1, or to 0 where all is masked |
    | `lse` | `[h t]` | `log(sum_j exp(masked_j))`: what merges parts of an answer |
    | `context` | `[h t e]` | `weights v`, per head |
    | `output` | `[t m]` | the heads side by side, times W_o where the variant has one |

    A leading batch axis is allowed on all of them.
    """

    q: Array | None = None
    k: Array | None = None
    v: Array | None = None
    scores: Array | None = None
    logits: Array | None = None
    capped: Array | None = None
    masked: Array | None = None
    weights: Array | None = None
    lse: Array | None = None
    context: Array | None = None
    output: Array | None = None

    def replace(self, **stages: Array | None) -> Trace:
        """Return this trace with some stages exchanged."""
        return replace(self, **stages)

    def stages(self) -> Iterator[tuple[str, Array]]:
        """Yield the name and array of each stage that was formed, in order."""
        for each in fields(self):
            array = getattr(self, each.name)
            if array is not None:
                yield each.name, array
