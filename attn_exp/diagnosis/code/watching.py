"""What happens inside a call of PyTorch's: each operation on tensors, with what it was given and what it returned.

No name of a parameter and no shape of a class matters here: whatever code is written around them, attention is a
product of queries and keys, a softmax and a product with values, and these are seen as the library computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attn_exp.arrays import Array

DROPPING = ("bernoulli", "native_dropout")
"""What PyTorch draws zeros and ones with, as its dropout does."""
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "convolution", "dot", "mv")
"""Operations that multiply matrices; all others of PyTorch's that do are made of these."""


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation: its name in PyTorch's list, the tensors it was given as arrays, and the one that it returned.

    `made` says which operation made each of them, or None of what was there before; `of_x` whether it was made of x.
    `numbers` are the plain numbers among its arguments.
    """

    name: str
    given: tuple[Array, ...]
    made: tuple[int | None, ...]
    of_x: tuple[bool, ...]
    numbers: tuple[float, ...]
    said: Array

    @property
    def is_product(self) -> bool:
        """Whether it multiplies matrices."""
        return self.name in PRODUCTS

    @property
    def is_of_x(self) -> bool:
        """Whether anything that it was given was made of x."""
        return any(self.of_x)


Given = tuple[Array, ...]


@dataclass
class Notes:
    """What is noted of the operations of a call; `instead` changes what one of them returns, by its place."""

    sources: set[int]
    instead: Mapping[int, Callable[[Any], Any]]
    operations: list[Operation] = field(default_factory=list)
    makers: dict[int, list[tuple[int, Array | None]]] = field(default_factory=dict)
    """What made the numbers of a place, the first one first, and which of them where it was not all."""
    kept: list[Any] = field(default_factory=list)

    def note(self, name: str, given: Sequence[Any], numbers: tuple[float, ...], said: Any, *, before: Given) -> None:
        """Note an operation; `before` is what it was given, as it was then."""
        places = [place_of(one) for one in given]
        made = tuple(self.maker(one) for one in given)
        of_x = tuple(place in self.sources for place in places)
        outs = [one for one in (said if isinstance(said, tuple | list) else (said,)) if hasattr(one, "untyped_storage")]
        if not outs:
            return
        self.kept += [*given, *outs]  # no place is used twice as long as all are kept
        for one in outs:
            place = place_of(one)
            if place not in places or name.endswith("_"):  # a view is no other numbers
                self.makers.setdefault(place, []).append((len(self.operations), part_of(one)))
            if any(of_x):
                self.sources.add(place)
        self.operations.append(Operation(name.rstrip("_"), before, made, of_x, numbers, plain(outs[0])))

    def maker(self, tensor: Any) -> int | None:
        """Return which operation made a tensor; one that changed another part of what it is a view of did not."""
        makers = self.makers.get(place_of(tensor), [])
        mine = part_of(tensor) if any(part is not None for _, part in makers) else None
        return next((at for at, part in reversed(makers) if part is None or mine is None or np.isin(mine, part).any()),
                    None)  # fmt: skip


def part_of(tensor: Any) -> Array | None:
    """Return which numbers of its place a view has, or None where it has all."""
    count = tensor.untyped_storage().nbytes() // tensor.itemsize
    if tensor.numel() == count:
        return None
    places = tensor.storage_offset() + sum(
        (np.arange(length) * stride).reshape(-1, *[1] * after)
        for after, length, stride in zip(range(tensor.ndim)[::-1], tensor.shape, tensor.stride(), strict=True)
    )
    return np.unique(places)


def watched(
    call: Callable[[], Any], sources: list[Any], instead: Mapping[int, Callable[[Any], Any]] | None = None
) -> tuple[list[Operation], Any]:  # fmt: skip
    """Return the operations of a call and what it returns; `sources` are the tensors that stand for x.

    Attention that PyTorch would compute in one piece is computed in its parts.
    """
    import torch  # noqa: PLC0415 - what is called is PyTorch's
    from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: PLC0415
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

    notes = Notes({place_of(one) for one in sources}, instead or {})

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # or PyTorch would import its compiler, which takes seconds

        def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), named: Any = None) -> Any:
            tensors = [one for every in given for one in (every if isinstance(every, list | tuple) else (every,))
                       if isinstance(one, torch.Tensor)]  # fmt: skip
            before = tuple(plain(one) for one in tensors)
            said = function(*given, **(named or {}))
            at = len(notes.operations)
            if at in notes.instead:
                said = notes.instead[at](said)
            numbers = tuple(float(one) for one in given if isinstance(one, int | float) and not isinstance(one, bool))
            notes.note(function.__name__.partition(".")[0], tensors, numbers, said, before=before)
            return said

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(value=False)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), Watch():  # type: ignore[no-untyped-call]
            answer = call()
    finally:
        torch.backends.mha.set_fastpath_enabled(value=fast)
    return notes.operations, answer


def place_of(tensor: Any) -> int:
    """Return where the numbers of a tensor lie; views of it lie there too."""
    return int(tensor.untyped_storage().data_ptr())


def plain(tensor: Any) -> Array:
    """Return a copy of a tensor as an array; one of a half type in float32."""
    held = tensor.detach().resolve_conj().cpu()
    array: Array = (held.float() if held.is_floating_point() and held.dtype.itemsize < 4 else held).numpy().copy()
    return array
