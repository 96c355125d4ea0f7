"""The same matrices in two modules, so that the same x must come to the same answer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.bound import Bound
from attn_exp.diagnosis.module_as_function import put_by_roles
from attn_exp.diagnosis.named_matrices import matrices, put_matrices
from attn_exp.errors import UserError

MISFITS = (UserError, RuntimeError, ValueError, AttributeError, KeyError, TypeError)
"""What comes of matrices that have no place in a module."""


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
    if first.inside.around is not None or second.inside.around is not None:
        return ""  # a norm of one has numbers of its own
    if (first.inside.heads, first.inside.groups) != (second.inside.heads, second.inside.groups):
        return ""
    try:
        now = with_matrices(second, first.inside.arrays, names[1])
    except MISFITS:
        return ""
    same = all(name in now and np.array_equal(array, now[name]) for name, array in first.inside.arrays.items())
    return f"with the matrices of {names[0]} in both" if same else ""


def with_matrices(module: Bound, arrays: Mapping[str, Array], name: str) -> dict[str, Array]:
    """Write matrices into a module, and return those that it has then, read where they were found."""
    import torch  # noqa: PLC0415 - it is a module of PyTorch

    tensors = {part: torch.as_tensor(np.array(array)) for part, array in arrays.items()}
    if module.layer is None or module.roles is None:
        put_matrices(module.origin, tensors)
        return matrices(module.origin, name)
    put_by_roles(module.layer, module.roles, tensors)
    own = {part: np.array(array) for part, array in module.layer.parameters.items()}
    return dict(module.roles.arrays(own))


def parameters(module: Any) -> dict[str, Any]:
    """Return the parameters and buffers of a module of PyTorch; nothing of anything else."""
    return dict(module.state_dict()) if hasattr(module, "state_dict") and hasattr(module, "load_state_dict") else {}


def sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shapes of arrays, by name."""
    return {name: value.shape for name, value in values.items()}
