"""Random arrays, settings and sizes: a run of them ends in rows that the reference confirms, or in one line."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from attn_exp.config.schema import read_config
from attn_exp.errors import UserError
from attn_exp.experiment.compare import tabulate
from attn_exp.experiment.row import Row
from attn_exp.problem.problem import Problem

Random = np.random.Generator

LONGEST_MESSAGE = 300
ROUNDING = 50
"""By how many units in its last place a logit may be off: it is a sum of a dozen terms."""

STRANGE: tuple[Any, ...] = (
    None, True, "x", "1", float("nan"), float("inf"), -1, 0, 1.5, 10**400, 2**63, [], [[]], [[1]], {}, {"a": 1}, "",
)  # fmt: skip


def attempt(seed: int) -> str | None:
    random = np.random.default_rng(seed)
    values = drawn(random)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = tabulate(read_config(values))
    except UserError as error:
        line = str(error)
        fits = "\n" not in line and len(line) < LONGEST_MESSAGE
        return None if fits else f"a message of {len(line)} characters: {line[:200]!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]} of {values}"
    wrong = next((row for row in found.rows if row.same_as and not is_right(row, found.problem)), None)
    return None if wrong is None else f"{wrong.variant} is wrong by {wrong.error} of {values}"


def is_right(row: Row, problem: Problem) -> bool:
    """Say whether a row was checked, and is as near to the reference as rounding allows.

    Rounding moves logits, and they move weights. Positions and biases keep the size of what they change, or add at
    most a few thousand.
    """
    sides = (problem.q, problem.k, problem.v)
    q, k, v = (1.0 if side is None else float(np.abs(side).max(initial=0)) for side in sides)
    logits = (q + 1) * (k + 1) * (1 if problem.q is None else problem.q.shape[1]) * (abs(row.multiplier) + 1) + 1e4
    bound = ROUNDING * float(np.finfo(row.computed_in).eps) * logits * max(v, 1.0) * problem.keys
    return row.checked > 0 and row.error <= bound


def one_of(random: Random, choices: Sequence[Any]) -> Any:
    return choices[int(random.integers(len(choices)))]


def sometimes(random: Random, share: float) -> bool:
    return bool(random.random() < share)


def drawn(random: Random) -> dict[str, Any]:
    """Draw a configuration; about half fit, the others have one thing that does not."""
    tokens, width, head = (int(one_of(random, sizes)) for sizes in ((1, 2, 3, 5, 8), (2, 4, 6, 8, 12), (1, 1, 2, 3)))
    start, keys = start_of(random, tokens, width)
    values: dict[str, Any] = {
        "embeddings": start,
        "projections": {"source": "none"}
        if "vectors" not in start and "distribution" not in start
        else drawn_from(random),
        "head": head,
        "seed": int(random.integers(5)),
        "bias": sometimes(random, 0.3),
        "scale": one_of(random, (True, False, 0.3, -0.5, 0)),
        "variant": {"loops": {"form": "looped"}, "whole": {"form": "matrix"}, "blocks": {"form": "blockwise"}},
        "mask": some(random, masks(random, tokens, keys)),
        "mask_join": one_of(random, ("and", "or")),
        "score": some(random, scores(random, head, tokens, keys)),
        "position": some(random, positions(random)),
        "normalizer": one_of(random, ("softmax", "softmax", "softmax", "sigmoid", "sparsemax")),
        "align": one_of(random, (None, "top_left", "bottom_right")),
    }
    if sometimes(random, 0.2):
        values["kv_head"] = one_of(random, (1, 2, 3))
    if sometimes(random, 0.2):
        values["weights"] = one_of(random, ("full", "blocks"))
    if sometimes(random, 0.1):
        values["convention"] = one_of(random, ("torch_mha", "flash", "jax", "keras", "onnx_old"))
    if sometimes(random, 0.3):
        spoil(random, values)
    return values


def drawn_from(random: Random) -> dict[str, Any]:
    return {"source": one_of(random, ("normal", "uniform", "identity"))}


def matrix(random: Random, rows: int, columns: int) -> list[list[Any]]:
    """Draw rows of ordinary, large, tiny or equal numbers; seldom they are no matrix of numbers at all."""
    size = one_of(random, (1.0, 1.0, 1.0, 0.0, 1e-320, 1e-9, 30.0, 1e9, 1e160))
    numbers: list[list[Any]] = (random.standard_normal((rows, columns)) * size).tolist()
    if sometimes(random, 0.04):
        one_of(random, numbers)[0] = one_of(random, STRANGE)
    if sometimes(random, 0.03):
        one_of(random, numbers).append(1.0)
    return numbers


def start_of(random: Random, tokens: int, width: int) -> tuple[dict[str, Any], int]:
    """Draw where the problem starts, and how many keys it has."""
    kind = one_of(random, ("vectors", "distribution", "queries", "queries", "weights"))
    if kind == "distribution":
        return {"distribution": one_of(random, ("normal", "uniform")), "tokens": tokens, "d_model": width}, tokens
    if kind == "vectors":
        return {"vectors": matrix(random, tokens, width)}, tokens
    keys = int(one_of(random, (1, 2, 3, tokens, tokens, 7)))
    v = matrix(random, keys, int(one_of(random, (width, width, 3, 6))))
    if kind == "weights":
        weights = np.abs(random.standard_normal((tokens, keys)))
        return {"weights": (weights / weights.sum(axis=1, keepdims=True)).tolist(), "v": v}, keys
    narrow = int(one_of(random, (width, width, max(1, width // 2))))
    given = {"q": matrix(random, tokens, width), "k": matrix(random, keys, narrow), "v": v}
    return (given if sometimes(random, 0.9) else given | {"v": None}), keys


def some(random: Random, choices: dict[str, Any]) -> dict[str, Any]:
    """Keep none, one or two of some rules."""
    count = int(one_of(random, (0, 0, 1, 1, 2)))
    names = random.permutation(list(choices))[:count]
    return {str(name): choices[str(name)] for name in names}


def masks(random: Random, tokens: int, keys: int) -> dict[str, Any]:
    rows = int(one_of(random, (1, tokens, tokens)))
    return {
        "causal": {},
        "window": {"left": int(random.integers(-1, 4)), "right": int(random.integers(-1, 4))},
        "prefix": {"length": int(random.integers(0, keys + 2))},
        "padding": {"lengths": int(random.integers(0, keys + 2))},
        "document": {"ids": [int(number) for number in random.integers(0, 3, keys)]},
        "array": {"values": (random.random((rows, keys)) < 0.6).tolist()},
    }


def scores(random: Random, head: int, tokens: int, keys: int) -> dict[str, Any]:
    return {
        "alibi": {},
        "softcap": {"cap": one_of(random, (0.5, 30.0, 1e-3, 1e6))},
        "sink": {"logit": one_of(random, (0.0, -3.5, [0.5] * head, 1e3))},
        "added": {"values": (random.standard_normal((tokens, keys)) * one_of(random, (1, 1e3))).tolist()},
        "t5": {"bidirectional": sometimes(random, 0.5), "buckets": one_of(random, (8, 32)), "max_distance": 128},
    }


def positions(random: Random) -> dict[str, Any]:
    return {
        "rope": {
            "interleaved": sometimes(random, 0.5),
            "size": one_of(random, (None, None, 2)),
            "stretch": one_of(random, (1.0, 4.0)),
        },
        "sinusoidal": {"base": one_of(random, (10000.0, 2.0))},
    }


def spoil(random: Random, values: dict[str, Any]) -> None:
    """Put something strange at a random place of the settings."""
    place: Any = values
    while True:
        name = one_of(random, list(place) if isinstance(place, dict) else range(len(place)))
        inside = place[name]
        if not isinstance(inside, dict | list) or not inside or sometimes(random, 0.3):
            place[name] = one_of(random, STRANGE)
            return
        place = inside
