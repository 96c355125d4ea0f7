"""The same matrices in two modules, so that the same x must come to the same answer."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from attn_exp.diagnosis.modules import Bound, matrices, put_matrices
from attn_exp.errors import UserError


def exchanged(first: Bound, second: Bound, names: tuple[str, str], by_role: bool = False) -> str:
    """Write the matrices of the first module into the second, and say how; nothing where that cannot be done.

    Parameters that have the same names and shapes are copied as they are; else each matrix goes to the projection that
    has its part in the other one, and with `by_role` always.
    """
    one, other = parameters(first.origin), parameters(second.origin)
    if one and sizes(one) == sizes(other) and not by_role:
        with suppress(RuntimeError, ValueError):
            second.origin.load_state_dict(one)
            return f"with the parameters of {names[0]} in both"
    if first.inside is None or second.inside is None or not one or not other:
        return ""
    if (first.inside.heads, first.inside.groups) != (second.inside.heads, second.inside.groups):
        return ""
    import torch  # noqa: PLC0415 - both are modules of PyTorch

    try:
        put_matrices(second.origin, {name: torch.as_tensor(array) for name, array in first.inside.arrays.items()})
        now = matrices(second.origin, names[1])
    except (UserError, RuntimeError, ValueError, AttributeError, KeyError, TypeError):
        return ""
    same = set(first.inside.arrays) <= set(now) and all(
        array.shape == now[name].shape and np.array_equal(array, now[name])
        for name, array in first.inside.arrays.items()
    )
    return f"with the matrices of {names[0]} in both" if same else ""


def parameters(module: Any) -> dict[str, Any]:
    """Return the parameters and buffers of a module of PyTorch; nothing of anything else."""
    return dict(module.state_dict()) if hasattr(module, "state_dict") and hasattr(module, "load_state_dict") else {}


def sizes(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value.shape for name, value in values.items()}
