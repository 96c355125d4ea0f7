"""By how much a layer turns its queries and keys from one token to the next: read off its answers to two tokens.

Of two tokens the second one's weights say `q R k`, where R turns by one step: it is linear in the cosines and sines of
the angles of all pairs, so enough questions give each of them. Angles that follow the formula of rotary positions have
words, whatever their base is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case, predicted
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.rules.masks.array import Allowed

ENTRIES = 24
CLOSE, SAME = 1e-4, 1e-5
"""How far a sum of cosines and sines may lie from what was read, and angles from those of the formula."""


def words_of_turning(caller: Caller, case: Case) -> list[str]:
    """Return the words for the rotary positions that a layer may have inside, at most one for each pairing."""
    width = case.given.x.shape[-1] if case.given.x is not None and not case.recipe.positions else 0
    around = case.given.around
    if not width or (around is not None and (around.inner or around.last or around.then)):
        return []
    x = np.random.default_rng(47).standard_normal((ENTRIES, 2, width))
    asked = replace(case, given=replace(case.given, x=x, memory=None))
    weights, stages = first_weights(caller, asked), predicted(asked.recipe, asked.given)
    if weights is None or stages is None:
        return []
    q = stages["q"][:, :, 1]
    k = np.repeat(stages["k"], q.shape[1] // stages["k"].shape[1], axis=1)
    scale = float(case.recipe.rules.scale)
    with np.errstate(all="ignore"):
        turned = np.log(weights / (1 - weights)) / scale + (q * k[:, :, 1]).sum(axis=-1)
    if not np.isfinite(turned).all():
        return []
    return list(filter(None, (said(q, k[:, :, 0], turned, *pairing) for pairing in pairings(q.shape[-1]))))


def pairings(size: int) -> Iterator[tuple[int, bool]]:
    """Yield how many numbers of a head may be turned, and whether those of a pair lie beside each other."""
    size -= size % 2  # a number alone is not turned
    yield from ((turned, False) for turned in range(size, 0, -2))
    yield from ((turned, True) for turned in range(size, 2, -2))


def first_weights(caller: Caller, case: Case) -> Array | None:
    """Return the weight of the first of two tokens for the second, `[b h]`, where an answer goes in a line with it."""
    output = caller(case).output
    other, own = (answers_of(case, np.array(seen, np.bool_)) for seen in (((1, 0), (1, 0)), ((1, 0), (0, 1))))
    if output is None or other is None or own is None or output.shape != own.shape[1:]:
        return None
    steps, gap = (other - own)[..., 1, :], output[:, 1] - own[..., 1, :].sum(axis=0) + rest(case, own)[:, 1]
    found = [np.linalg.lstsq(steps[:, entry].T, gap[entry], rcond=None) for entry in range(len(output))]
    left = max(float(np.abs(steps[:, e].T @ one[0] - gap[e]).max()) for e, one in enumerate(found))
    return np.array([one[0] for one in found]) if left < CLOSE * np.abs(output).max() else None


def rest(case: Case, own: Array) -> Array:
    """Return what the heads apart have too much: what stands beside them is in each of them."""
    nothing = case.given.arrays["W_v"] * 0.0
    arrays = {**case.given.arrays, "W_v": nothing, **({"b_v": nothing[0]} if "b_v" in case.given.arrays else {})}
    stages = predicted(case.recipe, replace(case.given, arrays=arrays))
    assert stages is not None
    return np.asarray((len(own) - 1) * stages["output"])


def answers_of(case: Case, seen: Array) -> Array | None:
    """Return the answer `[h b t m]` that each head alone gives where queries see these keys."""
    recipe = case.with_masks((Allowed(seen),)).recipe

    def alone(head: int) -> Array | None:
        made = replace(recipe, gather=lambda at, context: context * (np.arange(at.heads) == head)[:, None, None])
        stages = predicted(made, case.given)
        return None if stages is None else stages["output"]

    every = [one for head in range(recipe.heads) if (one := alone(head)) is not None]
    return np.array(every) if len(every) == recipe.heads else None


def said(q: Array, k: Array, turned: Array, size: int, interleaved: bool) -> str:
    """Return the words for angles that give these products of turned queries and keys, or nothing."""
    places = np.arange(size).reshape((-1, 2) if interleaved else (2, -1))
    first, second = places.T if interleaved else places
    cosines = q[..., first] * k[..., first] + q[..., second] * k[..., second]
    sines = q[..., first] * k[..., second] - q[..., second] * k[..., first]
    still = (q[..., size:] * k[..., size:]).sum(axis=-1)
    table = np.concatenate([cosines, sines], axis=-1).reshape(-1, size)
    found = np.linalg.lstsq(table, (turned - still).ravel(), rcond=None)[0]
    gap = np.abs(table @ found - (turned - still).ravel()).max()
    angles, lengths = np.arctan2(found[size // 2 :], found[: size // 2]), np.hypot(*np.split(found, 2))
    if gap > CLOSE * np.abs(turned).max() or np.abs(lengths - 1).max() > CLOSE or angles.min() <= 0:
        return ""
    stretch = rounded(1 / angles[0])
    base = rounded(float((angles[0] / angles[1]) ** (size / 2))) if size > 2 else 10000.0
    right = base ** (-2.0 * np.arange(size // 2) / size) / stretch
    if np.abs(angles - right).max() > SAME:
        return ""
    parts = {
        "base": base if base != 10000.0 else None, "interleaved": "true" if interleaved else None,
        "size": size if size != q.shape[-1] else None, "stretch": stretch if stretch != 1.0 else None,
    }  # fmt: skip
    words = (f"position.rope.{name}={value:g}" if isinstance(value, float) else f"position.rope.{name}={value}"
             for name, value in parts.items() if value is not None)  # fmt: skip
    return " ".join(["position=rope", *words])


def rounded(number: float) -> float:
    """Return a number with as few digits as it has within what was read of it."""
    some = (float(f"{number:.{digits}g}") for digits in range(1, 7))
    return next((one for one in some if abs(one / number - 1) < CLOSE), float(f"{number:.6g}"))
