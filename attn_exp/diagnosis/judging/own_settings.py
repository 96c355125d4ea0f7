"""Settings built into a layer that nobody typed: masks, rotation, a scale or a logit cap of its configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from attn_exp.diagnosis.asking.offer import plain
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.layer import Layer
from attn_exp.diagnosis.finding.other_words import CAUSAL, UNSCALED, are_open
from attn_exp.diagnosis.judging.bound_layers import Seen
from attn_exp.diagnosis.locate.matrices import read_projection

ROTATIONS = ("position=rope", "position=rope position.rope.interleaved=true")
OF_NORMS = re.compile("norm|sqrt")
"""Names of operations that normalize queries and keys."""


def find_own_words(seen: Seen, request: Request, *, is_masked: bool, turns: bool) -> Iterator[str]:
    """Yield combinations of settings that may be built into a layer, of kinds that the user did not set."""
    masks = [CAUSAL] if is_masked and not request.masks else []
    positions = [*ROTATIONS] if turns and not request.positions else []
    scores = list(find_score_words(seen, request))
    for words in product(("", *masks), ("", *positions), ("", *scores)):
        if any(words):
            yield " ".join(word for word in words if word)


def find_score_words(seen: Seen, request: Request) -> Iterator[str]:
    """Yield scales and logit caps that may be built into a layer, as settings.

    A scale of 1 is common if queries and keys are normalized, or with a bias per distance.
    """
    if not are_open(request, "scale"):
        return
    caps, scales = [""], list[str]()
    if any("bias" in plain(name) for name in seen.layer.unknown) or is_normed(seen):
        scales.append(UNSCALED)
    if any(value is False and re.fullmatch("(use_?)?scal(e|ed|ing)", str(name)) for name, value in
           seen.layer.settings.items()):  # fmt: skip
        scales.append(UNSCALED)
    for name, value in numbers_set(seen.layer):
        if re.search("soft_?cap", name) and value > 0:
            caps.append(f"score=softcap score.softcap.cap={value:g}")
        elif re.search("multiplier|scalar|scal(e|ing)$", name) and value > 0:
            scales += [f"scale={one!r}" for one in (value, value**-0.5) if one != 1]
    for scale, cap in product(("", *scales), caps):
        if scale or cap:
            yield f"{scale} {cap}".strip()


def numbers_set(layer: Layer) -> Iterator[tuple[str, float]]:
    """Yield the numbers among the settings with which a layer was built."""
    for name, value in layer.settings.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield str(name), float(value)


def is_normed(seen: Seen) -> bool:
    """Return whether queries and keys are normalized between their projections and their product."""
    return all(is_normed_side(seen, pair.first, side.place) for pair in seen.pairs for side in (pair.q, pair.k))


def is_normed_side(seen: Seen, product_of: int, place: int) -> bool:
    """Return whether an input of a product was normalized since the last product with a parameter."""
    operations = seen.recording.first.operations
    ahead, met = [operations[product_of].producers[place]], set[int]()
    while ahead:
        one = ahead.pop()
        if isinstance(one, int) and one not in met and read_projection(seen.recording, one) is None:
            met.add(one)
            if OF_NORMS.search(operations[one].name) and any(
                seen.recording.is_live(one, at) for at in range(len(operations[one].inputs))
            ):
                return True
            ahead += operations[one].producers
    return False
