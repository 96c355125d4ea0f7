"""Layers of PyTorch that take queries, keys and values projected already, or queries alone, cut into heads.

A matrix is put before each, so that all is asked of them that is asked of a layer with its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attn_exp.diagnosis.asking.offer import BY_NAME, plain
from attn_exp.diagnosis.calling.neutral_of_layers import OF_HEADS, Filled
from attn_exp.diagnosis.calling.way import Way
from attn_exp.diagnosis.code.returned import parts_of

PUT_BEFORE = "projected_here"
"""What a layer holds that has matrices put before it."""
SAID = "three matrices put before it, as it takes q, k and v projected"
SAID_OF_QUERIES = "a matrix put before it, as it takes queries projected"


def projected_before(module: Any, way: Way) -> Iterator[tuple[Any, str]]:
    """Yield a layer that takes some of q, k and v projected with matrices before it, and what is said of it."""
    if takes_them_projected(module, way):
        yield with_projections(module, way), SAID
    for name, make in way.given.items():
        if isinstance(make, Filled) and make.shape in OF_HEADS and make.turns and not hasattr(module, PUT_BEFORE):
            yield with_queries_of_heads(module, way, name, make), SAID_OF_QUERIES


def with_queries_of_heads(module: Any, way: Way, name: str, make: Filled) -> Any:
    """Return a module as a layer of queries and of a context, with a matrix before its queries, cut into heads."""
    import torch  # noqa: PLC0415 - the module is one of PyTorch's

    class WithQueries(torch.nn.Module):
        """The layer, and what makes its queries."""

        projected_here = True

        def __init__(self) -> None:
            super().__init__()
            self.q_proj = torch.nn.Linear(way.width, way.width, bias=False)
            self.layer = module

        def forward(self, queries: Any, context: Any) -> Any:
            heads = self.q_proj(queries).unflatten(-1, (-1, make.turns))
            heads = heads if make.shape == "b t h d" else heads.transpose(1, 2)
            laid = heads[:, None] if make.shape == "b 1 h t d" else heads
            said = replace(way, given={**way.given, name: lambda _: laid}).call(self.layer, context)
            return next(iter(parts_of(said).values()))

    return WithQueries().to(next(module.parameters())).eval().requires_grad_(False)


def takes_them_projected(module: Any, way: Way) -> bool:
    """Say whether a layer takes three inputs, tokens by their numbers, and nobody has put matrices before it yet."""
    three = sorted(way.sides.values()) == ["memory", "memory", "x"] and not way.packs
    return three and way.axes.endswith("m") and not hasattr(module, PUT_BEFORE)


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
