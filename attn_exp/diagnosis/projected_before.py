"""Layers of PyTorch that take queries, keys and values projected already, and hold what comes after attention alone.

Three matrices are put before them, so that all is asked of them that is asked of a layer with its own.
"""

from __future__ import annotations

import inspect
from typing import Any

from attn_exp.diagnosis.offer import BY_NAME, plain
from attn_exp.diagnosis.ways_into_layers import Way

SAID = "three matrices put before it, as it takes q, k and v projected"


def takes_them_projected(module: Any, way: Way) -> bool:
    """Say whether a layer takes three inputs, tokens by their numbers, and nobody has put matrices before it yet."""
    three = sorted(way.sides.values()) == ["memory", "memory", "x"] and not way.packs
    return three and way.axes.endswith("m") and not hasattr(module, "projected_here")


def sides_of(way: Way) -> dict[str, str]:
    """Return which of three inputs are queries, keys and values: by their names, else in the order of the call."""
    names = sorted(way.sides, key=lambda name: way.sides[name] != "x")
    known = {side: name for name in names if (side := BY_NAME.get(plain(name), "")) in ("q", "k", "v")}
    return known if len(known) == len(names) else dict(zip(("q", "k", "v"), names, strict=True))


def with_projections(module: Any, way: Way) -> Any:
    """Return a module as a layer of the same call with a matrix before each of its three inputs."""
    import torch  # noqa: PLC0415 - the module is one of PyTorch's

    signature = inspect.signature(module.forward)
    names = sides_of(way)

    class WithProjections(torch.nn.Module):
        """The layer, and what makes its queries, keys and values."""

        projected_here = True

        def __init__(self) -> None:
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj = (torch.nn.Linear(way.width, way.width, bias=False) for _ in names)
            self.layer = module

        def forward(self, *positional: Any, **named: Any) -> Any:
            given = signature.bind(*positional, **named)
            for side, name in names.items():
                if given.arguments.get(name) is not None:
                    given.arguments[name] = getattr(self, f"{side}_proj")(given.arguments[name])
            return self.layer(*given.args, **given.kwargs)

    made = WithProjections().to(next(module.parameters())).eval().requires_grad_(False)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    vars(WithProjections)["forward"].__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])
    return made
