"""The plots that a sweep can have, and what each needs; `sweep.plot=` names those that are drawn beside the usual."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attn_exp.errors import UserError, unknown

NEEDS = {
    "effects": (1, 99, "a setting that varies"),
    "against": (1, 3, "one to three settings that vary, one of them of numbers"),
    "choices": (1, 1, "one setting that varies"),
    "heat": (2, 2, "two settings that vary"),
    "parallel": (2, 99, "two settings that vary, or more"),
    "spread": (0, 99, "results"),
}
"""How many settings may vary beside the seed, and the same in words."""


def check(names: Sequence[str], axes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a plot that there is not, or that cannot be drawn of these axes.

    Raises:
        UserError: which, and what it needs.
    """
    varying = [axis for axis in axes if axis["key"] != "seed" and axis["count"] > 1]
    numeric = [axis for axis in varying if axis["kind"] in ("int", "float")]
    for name in names:
        if name not in NEEDS:
            raise UserError(unknown(name, list(NEEDS), "plot in sweep.plot"))
        least, most, need = NEEDS[name]
        if not least <= len(varying) <= most or (name == "against" and not numeric):
            keys = ", ".join(axis["key"] for axis in varying) or "none"
            raise UserError(f"sweep.plot={name} needs {need}; here vary: {keys}")
