"""Layers of several libraries behind one face: their parameters as arrays, numbers put into them, and a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.offer import parameters_of
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.diagnosis.code.watching import watched
from attn_exp.own_code import held

ROUNDING_OF_SINGLE = 3e-5
"""Of the largest number of an answer in float32; what changes by less does not change."""


class TorchLayer:
    """A module of PyTorch, in float64; in `single` where its own code holds numbers of float32."""

    def __init__(self, module: Any, single: bool = False) -> None:
        self.module = without_slopes(module.float() if single else module)
        self.rounding = ROUNDING_OF_SINGLE if single else 1e-7
        self.places: dict[str, Any] = dict(module.named_parameters())
        self.norms = [child for child in module.modules() if child is not module and is_norm(child)]
        of_norms = {id(tensor) for norm in self.norms for tensor in norm.parameters()}
        self.of_norms = {name for name, tensor in self.places.items() if id(tensor) in of_norms}

    @property
    def kind(self) -> str:
        """The type of its numbers, which is that of what it takes."""
        return str(next(iter(self.places.values())).dtype).removeprefix("torch.")

    @property
    def parameters(self) -> Mapping[str, Array]:
        """Every parameter, in float64."""
        return {name: tensor.detach().cpu().double().numpy() for name, tensor in self.places.items()}

    def put(self, values: Mapping[str, Array]) -> None:
        """Write numbers into parameters."""
        import torch  # noqa: PLC0415 - the module is one of PyTorch's

        for name, array in values.items():
            place = self.places[name]
            place.data.copy_(torch.as_tensor(np.ascontiguousarray(array)).reshape(place.shape))

    def hide(self, names: Collection[str]) -> Callable[[], None]:
        """Count some parameters no longer among those of the layer, and return what counts them again."""
        before = self.places
        self.places = {name: place for name, place in before.items() if name not in names}
        return lambda: setattr(self, "places", before)

    def __call__(self, *positional: Any, **named: Any) -> Any:
        return self.module(*positional, **named)

    def called_with_more(self, names: Collection[str], answer: Callable[[], Any]) -> set[str]:
        """Return which parameters are of a layer inside that is called once the call of an answer has more inputs.

        Each of the inputs that may be left out is given what the first one is, whatever becomes of the call.
        """
        words = [one.name for one in parameters_of(self.module.forward, "") if one.default is None]
        inside = {name: self.module.get_submodule(name.rpartition(".")[0]) for name in names if "." in name}
        met = set[str]()
        held = [child.register_forward_pre_hook(lambda _, given, name=name: met.add(name))
                for name, child in inside.items()]  # fmt: skip
        try:
            for word in words if inside else ():
                more = self.module.register_forward_pre_hook(partial(with_one_more, word=word), with_kwargs=True)
                with suppress(Exception):
                    answer()
                more.remove()
        finally:
            for hook in held:
                hook.remove()
        return met

    def lent(self, array: Array) -> Any:
        """Return an array as a tensor of the layer's own type."""
        import torch  # noqa: PLC0415 - the module is one of PyTorch's

        return torch.from_numpy(np.array(array)).to(next(iter(self.places.values())))

    def told(self, call: Callable[[], Any], given: Sequence[Any], theirs: Collection[str], instead: Any) -> Any:
        """Return the operations of a call and what it returns; `given` are the tensors that stand for x."""
        return watched(call, [one for one in given if one is not None], instead)

    def lent_as_it_is(self, mask: Any) -> Any:
        """Return a mask as a tensor: one of booleans or whole numbers keeps its type."""
        if not isinstance(mask, np.ndarray):
            return mask
        import torch  # noqa: PLC0415 - the module is one of PyTorch's

        device = next(iter(self.places.values())).device
        return self.lent(mask) if mask.dtype.kind == "f" else torch.from_numpy(np.array(mask)).to(device)

    def answer(self, way: Any, x: Array, memory: Array | None) -> Array:
        """Return the answer of a call as NumPy has it."""
        import torch  # noqa: PLC0415 - the module is one of PyTorch's

        given = [None if one is None else self.lent(one) for one in (x, memory)]
        with torch.no_grad(), held():
            said = way.call(self, *given)
        array: Array = next(iter(parts_of(said).values())).detach().cpu().double().numpy()
        return array

    @contextmanager
    def without_norms(self) -> Iterator[None]:
        """Let every norm inside hand on what it is given."""
        held = [norm.register_forward_hook(lambda _, given, said: given[0]) for norm in self.norms]
        try:
            yield
        finally:
            for hook in held:
                hook.remove()

    @contextmanager
    def watched(self) -> Iterator[list[tuple[Any, Any, Any]]]:
        """Note what every norm inside is given and what it returns, in the order of the calls."""
        seen = list[tuple[Any, Any, Any]]()
        held = [
            norm.register_forward_hook(lambda one, given, said: seen.append((one, given[0].detach(), said.detach())))
            for norm in self.norms
        ]
        try:
            yield seen
        finally:
            for hook in held:
                hook.remove()


def with_one_more(module: Any, given: tuple[Any, ...], named: dict[str, Any], *, word: str) -> Any:
    """Return the arguments of a call with the first tensor among them for a word that none of them stands for."""
    bound = inspect.signature(module.forward).bind(*given, **named).arguments
    first = next((one for one in bound.values() if hasattr(one, "ndim") and one.ndim > 1), None)
    return (given, named) if first is None or bound.get(word) is not None else (given, named | {word: first.clone()})


def without_slopes(module: Any) -> Any:
    """Return a module of whose parameters nobody asks slopes; compiled ones have no word for all of them."""
    for tensor in module.parameters():
        tensor.requires_grad_(requires_grad=False) if tensor.is_leaf else tensor.detach_()
    return module


def with_listed_layers_held(module: Any) -> Any:
    """Return a module that knows of the layers and parameters in its plain lists and mappings, as PyTorch does not."""
    import torch  # noqa: PLC0415 - the module is one of PyTorch's

    usual, known = vars(torch.nn.Module()), {*map(id, module.modules()), *map(id, module.parameters())}
    for child in list(module.modules()):
        for word, value in list(vars(child).items()):
            listed = [] if word in usual else [part for part in listed_in(value) if id(part) not in known]
            layers = [with_listed_layers_held(part) for part in listed if isinstance(part, torch.nn.Module)]
            tensors = [part for part in listed if isinstance(part, torch.nn.Parameter)]
            if layers or tensors:
                held = torch.nn.ModuleList(layers)
                for at, tensor in enumerate(tensors):
                    held.register_parameter(f"at_{at}", tensor)
                child.add_module(f"{word}_listed", held)
    return module


def listed_in(value: Any) -> Iterator[Any]:
    """Yield what is in a list, a tuple or a mapping, and in those inside it."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from listed_in(part) if isinstance(part, list | tuple | dict) else (part,)


def with_drawn_tensors_held(module: Any) -> Any:
    """Return a module whose plain tensors of random numbers are parameters, as their author may have meant them.

    Numbers that were drawn lie without order: no row is like the next one, as those of sines are.
    """
    import torch  # noqa: PLC0415 - the module is one of PyTorch's

    for child in module.modules():
        if child._forward_pre_hooks:  # they make some of its tensors anew in each call
            continue
        for word, tensor in list(vars(child).items()):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.ndim > 1:
                array = tensor.detach().cpu().double().numpy()
                rows = array.reshape(-1, array.shape[-1])
                if min(rows.shape) > 1 and len(np.unique(rows)) > 0.99 * rows.size and not alike(rows[:-1], rows[1:]):
                    delattr(child, word)
                    child.register_parameter(word, torch.nn.Parameter(tensor.detach().to(torch.float64)))
    return module


def alike(one: Array, other: Array) -> bool:
    """Say whether two arrays go up and down together."""
    return bool(abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) > ALIKE)


ALIKE = 0.5


def is_norm(module: Any) -> bool:
    """Say whether a module looks like a norm: by its name, and it holds no matrix and no other module."""
    if next(iter(module.children()), None) is not None or not hasattr(module, "forward"):
        return False
    sizes = [sum(length > 1 for length in tensor.shape) for tensor in module.parameters()]
    name = type(module).__name__.lower()
    if "norm" not in name or any(size > MOST_AXES for size in sizes):
        return False
    named = [
        given
        for given in parameters_of(module.forward, name)
        if given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD)
    ]
    return len([given for given in named if given.default is given.empty]) <= 1


MOST_AXES = 2
"""Of a norm's gain: one for each number, or for each head and number."""
