"""Layers of PyTorch with inputs that are parameters of their own: keys and values as a memory, or queries of a pooler.

Such a layer is cross attention of which one input is kept inside; it is given from outside here, so all is asked of it
that is asked of any other. Learned queries are asked as x, and what the layer takes is the memory.

Where keys and values are learned, tokens are what is remembered here: a key and a value are made of each token of a
`context`, by a matrix each. Which parameters they are, what they do tells: with each of its slots twice, in keys and in
values at once, a layer answers as before in shape, and with those of one of them alone it cannot be called; the answer
goes in a line where values do, and not where keys do.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Any

from attn_exp.diagnosis.asking.offer import role_of
from attn_exp.diagnosis.calling.search_of_ways import HERE
from attn_exp.diagnosis.calling.way import Way
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.diagnosis.matrices.sizes_of_files import ONE_AT_A_TIME
from attn_exp.errors import UserError
from attn_exp.own_code import held

REMEMBERED = "remembered_here"
"""What a layer holds whose memory is made of tokens."""
MADE = {"k_proj.weight", "v_proj.weight", "memory_in.weight"}
"""What is put before keys and values: what asks is made by none of these."""
MOST = 40
"""Pairs of parameters that are tried."""
NORMED_TWICE = (
    "its keys and values are learned, and its weights are normed over tokens and over slots, "
    "as external attention does it: that is no softmax over keys"
)
SAID = "its learned keys and values made of a context by a matrix each"
SAID_OF_QUERIES = f"a matrix put before x, and {SAID}"
SAID_OF_ROWS = "its learned memory made of a context"


@dataclass(frozen=True)
class Slots:
    """A parameter and the axis along which its slots lie."""

    name: str
    axis: int

    def laid(self, rows: Any, shape: Sequence[int]) -> Any:
        """Return rows `[t n]` as a parameter of this shape has its slots."""
        others = [length for axis, length in enumerate(shape) if axis != self.axis]
        return rows.reshape(len(rows), *others).movedim(0, self.axis)


def of_tokens(module: Any, way: Way, name: str) -> Iterator[tuple[Any, str]]:
    """Yield a layer of `x` and `context` for each parameter, or two, that may be a module's memory, and what is said.

    Raises:
        NormedTwiceError: its weights are normed over tokens and over slots.
    """
    if way.memory or way.asks or way.groups or hasattr(module, REMEMBERED):
        return
    asked = Asked(module, way)
    for slots in asked.pairs():
        are_shares, is_mixing = asked.weighs_in_shares(slots[1]), asked.is_mixing()
        if are_shares and is_mixing:
            raise NormedTwiceError(f"{name}: {NORMED_TWICE}")
        if not are_shares and not is_mixing:  # an MLP does so
            continue
        yield with_context(module, way, slots, with_queries=False), SAID
        yield with_context(module, way, slots, with_queries=True), SAID_OF_QUERIES
    for one in asked.alone():
        yield with_context(module, way, [one], with_queries=False), SAID_OF_ROWS


class NormedTwiceError(UserError):
    """A layer with learned keys and values norms its weights over tokens and over slots."""


class Asked:
    """A module that is asked with other numbers in some of its parameters."""

    def __init__(self, module: Any, way: Way) -> None:
        import torch  # noqa: PLC0415 - the module is one of PyTorch's

        self.module, self.way, self.torch = module, way, torch
        self.own = {name: tensor.detach() for name, tensor in module.named_parameters() if tensor.ndim > 1}
        self.x = torch.randn(
            1, way.tokens or HERE, way.width, generator=torch.Generator().manual_seed(61), dtype=torch.float64
        ).to(next(iter(self.own.values())) if self.own else torch.float64)
        self.plain = self.answer({})

    def answer(self, instead: Mapping[str, Any], x: Any = None) -> Any:
        """Return the answer where parameters are others; None where it cannot be called so."""
        with suppress(Exception), held(), self.torch.no_grad():
            return answer_with(self.module, self.way, instead, self.x if x is None else x)
        return None

    def twice(self, slots: Sequence[Slots]) -> Any:
        """Return the answer where each of these slots is there twice, if it has the same shape."""
        said = self.answer({one.name: self.torch.cat([self.own[one.name]] * 2, one.axis) for one in slots})
        return said if said is not None and self.plain is not None and said.shape == self.plain.shape else None

    def pairs(self) -> Iterator[list[Slots]]:
        """Yield the slots of keys and those of values."""
        every = [Slots(name, axis) for name, tensor in self.own.items() for axis in range(tensor.ndim)]
        apart = [one for one in every if self.twice([one]) is None]
        both = ((one, other) for one, other in permutations(apart, 2) if one.name != other.name
                and self.own[one.name].shape[one.axis] == self.own[other.name].shape[other.axis])  # fmt: skip
        for keys, values in islice(both, MOST):
            if self.is_straight(values) and not self.is_straight(keys) and self.twice([keys, values]) is not None:
                yield [keys, values]

    def alone(self) -> Iterator[Slots]:
        """Yield the slots of a parameter that makes keys and values: with each twice, the answer is the same."""
        for name, tensor in self.own.items():
            for axis in range(tensor.ndim):
                said = self.twice([Slots(name, axis)])
                if (
                    said is not None
                    and self.torch.allclose(said, self.plain)
                    and not self.is_straight(Slots(name, axis))
                ):
                    yield Slots(name, axis)

    def weighs_in_shares(self, values: Slots) -> bool:
        """Say whether an answer is the same whatever x is, where all values are: their weights sum to 1."""
        own = self.own[values.name]
        equal = {values.name: own.narrow(values.axis, 0, 1).expand_as(own).contiguous()}
        one, other = self.answer(equal), self.answer(equal, -0.5 * self.x.flip(1))
        return one is not None and other is not None and self.torch.allclose(one, other, atol=1e-5)

    def is_mixing(self) -> bool:
        """Say whether a token changes what is answered for another."""
        x = self.x.clone()
        x[:, 0] += 1.0
        said = self.answer({}, x)
        return said is not None and not self.torch.allclose(said[:, 1:], self.plain[:, 1:], atol=1e-6)

    def is_straight(self, one: Slots) -> bool:
        """Say whether the answer goes in a line where a parameter does."""
        own = self.own[one.name]
        step = self.torch.randn(own.shape, generator=self.torch.Generator().manual_seed(67), dtype=self.torch.float64)
        there, back = (self.answer({one.name: own + sign * step.to(own)}) for sign in (1.0, -1.0))
        return there is not None and back is not None and self.torch.allclose((there + back) / 2, self.plain, atol=1e-6)


def answer_with(module: Any, way: Way, instead: Mapping[str, Any], x: Any) -> Any:
    """Return the answer `[b t n]` of a module where some of its parameters are other tensors, of any shape."""
    import torch  # noqa: PLC0415 - the module is one of PyTorch's

    def call(*positional: Any, **named: Any) -> Any:
        return torch.func.functional_call(module, dict(instead), positional, named)

    with ONE_AT_A_TIME:
        before = [(one._parameters, dict(one._parameters)) for one in module.modules()]
        try:
            return next(iter(parts_of(way.call(call, x)).values()))
        finally:
            for held, own in before:  # PyTorch does not put back what a module with two names holds
                held.update(own)


def with_context(module: Any, way: Way, slots: Sequence[Slots], with_queries: bool) -> Any:
    """Return a module as a layer of `x` and a `context`, of which its memory is made; it needs no other length of x."""
    import torch  # noqa: PLC0415 - the module is one of PyTorch's

    layer = copy.deepcopy(module)
    shapes = {one.name: tuple(layer.get_parameter(one.name).shape) for one in slots}
    for name in shapes:  # they are no parameters any more
        path, _, word = name.rpartition(".")
        owner = layer.get_submodule(path)
        tensor = owner._parameters.pop(word).detach()
        owner.register_buffer(word, tensor)
    wide = [tensor.numel() // tensor.shape[one.axis] for one in slots for tensor in [layer.get_buffer(one.name)]]

    class OfContext(torch.nn.Module):
        """The layer, and what makes its memory."""

        remembered_here = True

        def __init__(self) -> None:
            super().__init__()
            words = ("k_proj", "v_proj") if len(slots) > 1 else ("memory_in",)
            self.words = dict(zip(words, slots, strict=True))
            for word, numbers in zip(words, wide, strict=True):
                is_given = len(slots) == 1 and numbers == way.width  # keys and values have matrices of their own
                made = torch.nn.Identity() if is_given else torch.nn.Linear(way.width, numbers, bias=False)
                self.add_module(word, made)
            if with_queries:
                self.q_proj = torch.nn.Linear(way.width, way.width, bias=False)
            self.layer = layer

        def forward(self, x: Any, context: Any) -> Any:
            x = self.q_proj(x) if with_queries else x
            return torch.cat([self.of_one(x[at : at + 1], context[at]) for at in range(len(x))])

        def of_one(self, x: Any, context: Any) -> Any:
            """Return the answer for one entry."""
            rows = {one.name: getattr(self, word)(context) for word, one in self.words.items()}
            laid = {one.name: one.laid(rows[one.name], shapes[one.name]) for one in slots}
            return answer_with(self.layer, way, laid, x)

    return OfContext().to(next(module.parameters())).eval().requires_grad_(False)


def with_their_queries(module: Any, tokens: int) -> Iterator[Any]:
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
