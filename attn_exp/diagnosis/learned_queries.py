"""Layers of PyTorch whose queries are parameters of their own, as poolers have them: the queries are what is asked.

Such a layer is cross attention of which one input is kept inside. It is given from outside here, as x, and what the
layer takes is the memory; so all is asked of it that is asked of any other.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any

from attn_exp.diagnosis.offer import role_of
from attn_exp.diagnosis.returned import parts_of


def asked(module: Any, tokens: int) -> Iterator[Any]:
    """Yield a layer of `queries` and `context` for each parameter that may hold a module's queries.

    `tokens`: how many it answered for; a parameter that holds as many rows is one.
    """
    for name, tensor in list(module.named_parameters()):
        shape = tuple(tensor.shape)
        if len(shape) > 1 and shape[-2] == tokens and all(length == 1 for length in shape[:-2]):
            yield with_queries(copy.deepcopy(module), name)


def with_queries(module: Any, name: str) -> Any:
    """Return a module as a layer of `queries` `[b t m]` and `context`, where one of its parameters held the queries."""
    import torch  # noqa: PLC0415 - the module is one of PyTorch's

    path, _, word = name.rpartition(".")
    owner = module.get_submodule(path)
    own = getattr(owner, word).detach()

    class WithQueries(torch.nn.Module):
        """The layer; its own queries are no parameter any more."""

        def __init__(self) -> None:
            super().__init__()
            del owner._parameters[word]
            self.layer = module
            setattr(owner, word, own)

        def forward(self, queries: Any, context: Any, **masks: Any) -> Any:
            """Return the answers to all queries, as many at a time as the layer has."""
            most, tokens = own.shape[-2], queries.shape[1]
            answers = []
            for start in range(0, tokens, most):
                chosen = [min(place, tokens - 1) for place in range(start, start + most)]
                each = [self.of_one(queries[at, chosen], context[at : at + 1], of_entry(masks, at, len(queries)))
                        for at in range(len(queries))]  # fmt: skip
                answers.append(torch.stack(each)[:, : tokens - start])
            return torch.cat(answers, 1)

        def of_one(self, queries: Any, context: Any, masks: dict[str, Any]) -> Any:
            """Return the answers `[t m]` for one entry of the batch."""
            setattr(owner, word, queries.reshape(own.shape).to(own))
            try:
                said = next(iter(parts_of(self.layer(context, **masks)).values()))
            finally:
                setattr(owner, word, own)
            return said.reshape(len(queries), -1)

    asking = WithQueries()
    sides = [inspect.Parameter(side, inspect.Parameter.POSITIONAL_OR_KEYWORD) for side in ("queries", "context")]
    vars(asking)["forward"] = with_signature(asking.forward, [*sides, *words_for_masks(module)])
    return asking


def of_entry(masks: dict[str, Any], at: int, entries: int) -> dict[str, Any]:
    """Return the masks of one entry; one for all entries is that of each."""
    return {word: mask[at : at + 1] if mask is not None and len(mask) == entries else mask
            for word, mask in masks.items()}  # fmt: skip


def words_for_masks(module: Any) -> list[inspect.Parameter]:
    """Return a module's words for masks that it can do without, as keywords."""
    given = inspect.signature(module.forward).parameters.values()
    return [one.replace(kind=one.KEYWORD_ONLY) for one in given
            if one.default is None and role_of(one.name) in ("mask", "padding")]  # fmt: skip


def with_signature(call: Any, given: list[inspect.Parameter]) -> Any:
    """Return a function that does what another does, and says that it takes these parameters."""

    def same(*positional: Any, **named: Any) -> Any:
        return call(*positional, **named)

    vars(same)["__signature__"] = inspect.Signature(given)
    return same
