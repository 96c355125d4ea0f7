"""Every metric and check on small random problems: python -m tools.fuzz --only metrics

Masks that hide all, single tokens, sinks, sigmoids and types that round: what a variant lacks is left out, and nothing
warns or falls.
"""

from __future__ import annotations

import traceback
import warnings
from typing import Any

import numpy as np

from attn_exp.config.inputs import Embeddings, Projections
from attn_exp.config.schema import Config, Variant
from attn_exp.errors import UserError
from attn_exp.experiment.compare import compare
from attn_exp.experiment.library_conventions import CONVENTIONS

FORMS = ("matrix", "looped", "blockwise", "decode", "linear", "linear_recurrent")
CHECKS = ("measures", "invariants", "conventions", "precision", "mask")


def attempt(seed: int) -> str | None:
    rng = np.random.default_rng(seed)
    config = drawn(rng)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return wrong(config)
    except UserError as error:
        return None if "\n" not in str(error) else f"{seed}: {error}"
    except Exception:
        return f"{seed}: {traceback.format_exc()[-1500:]}"


def wrong(config: Config) -> str | None:
    """Say what a comparison tells that cannot be: a right form that is called wrong, or numbers out of their range."""
    for row in compare(config).rows:
        if row.same_as and row.error_ulp > 1e4 and config.normalizer == "softmax":
            return f"{row.variant} is wrong by {row.error_ulp:.3g} ulp: {config}"
        if row.effective_keys > 1 + 1e-6 + len(config.embeddings.k):
            return f"{row.variant} spreads over {row.effective_keys} keys: {config}"
    return None


def drawn(rng: np.random.Generator) -> Config:
    rows, keys = (int(rng.choice([1, 1, 2, 3, 5, 9])) for _ in range(2))
    head, size = int(rng.choice([1, 2, 3])), 2 * int(rng.choice([1, 2]))
    kv_head = 1 if rng.random() < 0.3 else None
    sides = {name: rng.standard_normal((length, head * size)).tolist()
             for name, length in (("q", rows), ("k", keys), ("v", keys))}  # fmt: skip
    return Config(
        embeddings=Embeddings(tokens=rows, **sides),
        projections=Projections(source="none"),
        head=head,
        kv_head=kv_head,
        mask=masks(rng, rows, keys),
        score=some(rng, {"alibi": {}, "softcap": {"cap": 2.0}, "sink": {}, "t5": {}}),
        position=some(rng, {"rope": {}}),
        normalizer=str(rng.choice(["softmax"] * 6 + ["sigmoid", "sparsemax"])),
        convention=str(rng.choice(["none", "none", *CONVENTIONS])),
        check=(str(rng.choice(CHECKS)),),
        variant={form: Variant(form=form) for form in rng.choice(FORMS, 2, replace=False).tolist()},
    )


def masks(rng: np.random.Generator, rows: int, keys: int) -> dict[str, Any]:
    values = (rng.random((rows, keys)) < rng.choice([0.0, 0.3, 0.8])).tolist()
    window = {"left": int(rng.integers(-1, 3)), "right": int(rng.integers(-1, 2))}
    return some(
        rng,
        {"causal": {}, "padding": {"lengths": int(rng.integers(0, keys + 1))}, "array": {"values": values},
         "window": window},
    )  # fmt: skip


def some(rng: np.random.Generator, choices: dict[str, Any]) -> dict[str, Any]:
    return {name: settings for name, settings in choices.items() if rng.random() < 0.3}
