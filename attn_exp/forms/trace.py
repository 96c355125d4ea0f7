"""The named stages of one attention computation."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attn_exp.arrays import Array


@dataclass(frozen=True)
class Summary:
    """What the weights look like, from a form that never has them whole.

    Of each row `[h t]`: the `entropy` in nats, `effective_keys` = exp(entropy), the `largest_weight`, and the
    `sink_mass`, which is the weight of key 0. `heat` `[h a c]` holds the mean weight of every cell of a coarse grid
    whose runs of queries and keys begin and end at `row_edges` `[a+1]` and `key_edges` `[c+1]`.
    """

    entropy: Array
    effective_keys: Array
    largest_weight: Array
    sink_mass: Array
    heat: Array
    row_edges: Array
    key_edges: Array


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
    | `summary` | | what the weights look like, where a form was asked for that instead of them |

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
    summary: Summary | None = None

    def replace(self, **stages: Any) -> Trace:
        """Return this trace with some stages exchanged."""
        return replace(self, **stages)

    def stages(self) -> Iterator[tuple[str, Array]]:
        """Yield the name and array of each stage that was formed, in order."""
        for stage in fields(self):
            array = getattr(self, stage.name)
            if array is not None and stage.name != "summary":
                yield stage.name, array
