"""Layers, classes of layers and functions that a class may want to be made of, as `norm=nn.LayerNorm` says it."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from attn_exp.diagnosis.asking.offer import plain
from attn_exp.diagnosis.asking.uses import Use

CLASSES: dict[str, dict[str, tuple[str, ...]]] = {
    "torch": {"norm": ("nn.LayerNorm", "nn.BatchNorm2d", "nn.BatchNorm1d"), "ln": ("nn.LayerNorm",),
              "bn": ("nn.BatchNorm2d", "nn.BatchNorm1d"), "conv": ("nn.Conv2d", "nn.Conv1d", "nn.Conv3d"),
              "act": ("nn.Identity", "nn.GELU"), "nonlin": ("nn.Identity", "nn.GELU"),
              "gelu": ("nn.GELU",), "relu": ("nn.ReLU",),
              "drop": ("nn.Dropout",), "linear": ("nn.Linear",), "dense": ("nn.Linear",), "proj": ("nn.Linear",),
              "fc": ("nn.Linear",), "": ("nn.Identity", "nn.Linear")},
    "linen": {"norm": ("LayerNorm",), "act": ("gelu",), "dense": ("Dense", "DenseGeneral"), "linear": ("Dense",),
              "proj": ("Dense",), "conv": ("Conv",), "drop": ("Dropout",), "": ("Dense",)},
    "haiku": {"linear": ("Linear",), "": ("Linear",)},
    "equinox": {"norm": ("nn.LayerNorm",), "drop": ("nn.Dropout",), "": ("nn.Linear",)},
    "keras": {"norm": ("layers.LayerNormalization",), "": ("layers.Dense",)},
}  # fmt: skip
"""Which classes of each library make what a word speaks of; the empty word stands for all others."""
HOMES = {"torch": "torch", "linen": "flax.linen", "haiku": "haiku", "equinox": "equinox", "keras": "keras"}
FUNCTIONS: dict[str, dict[str, str]] = {
    "torch": {"act": "nn.functional.gelu", "nonlin": "nn.functional.gelu", "softmax": "nn.functional.softmax",
              "normalizer": "nn.functional.softmax", "init": "nn.init.xavier_uniform_"},
    "linen": {"act": "gelu", "softmax": "softmax", "init": "initializers.xavier_uniform()"},
    "haiku": {"init": "initializers.VarianceScaling()"},
}  # fmt: skip
"""Functions that a word speaks of; a word in brackets is called first."""


def classes(name: str, library: str, use: Use | None = None) -> list[Any]:
    """Return what may make a layer that a name speaks of; of no arguments an activation, and what does nothing."""
    table, word = CLASSES.get(library, {}), plain(name)
    said = next((paths for part, paths in table.items() if part and part in word), ())
    if use is not None and use.made_from and use.taken == 0 and library == "torch":
        said = said or ("nn.GELU",)
    found = [found_at(library, path) for path in dict.fromkeys((*said, *table.get("", ())))]
    known = [one for one in found if one is not None]
    return [*known, *map(of_one_input, known)] if library == "torch" and use is not None and use.made_from else known


def of_one_input(kind: Any) -> Any:
    """Return a class of PyTorch's layers whose objects leave aside all that they are called with beside x."""
    if not isinstance(kind, type):
        return kind

    def forward(self: Any, x: Any, *_: Any, **__: Any) -> Any:
        return kind.forward(self, x)  # type: ignore[attr-defined] # a layer has one

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def functions(name: str, library: str) -> list[Any]:
    """Return functions that a name speaks of, and one that returns what it is given."""
    path = next((path for part, path in FUNCTIONS.get(library, {}).items() if part in plain(name)), "")
    found = found_at(library, path.removesuffix("()")) if path else None
    found = found() if found is not None and path.endswith("()") else found
    return [unchanged] if found is None else [found, unchanged]


def layers(name: str, library: str, width: int) -> list[Any]:
    """Return layers that are made already, as `norm: nn.Module` wants one; those with numbers are `width` wide."""
    made = list[Any]()
    for kind in classes(name, library):
        for wanted in ((), (width,), (width, width), (width, width, 1)):
            try:
                made.append(kind(*wanted))
            except Exception:  # it takes more, or fewer
                continue
            break
    return made


def tables(name: str, use: Use, size: int, library: str) -> list[Any]:
    """Return tables of no angle for heads of such a size, by place, or a function that gives them; nothing of others.

    One that is asked for two parts is a pair of cosines and sines.
    """
    word = plain(name)
    numbers: Any = sys.modules.get({"torch": "torch", "numpy": "numpy"}.get(library, "jax.numpy"))
    if numbers is None or library == "keras":
        return []
    shapes = [(PLACES, size), (PLACES, size // 2)]
    for end, fill in (("cos", numbers.ones), ("cosine", numbers.ones), ("sin", numbers.zeros), ("sine", numbers.zeros)):
        if word.endswith(end) and not word.endswith("cossin"):
            return [fill(shape) for shape in shapes]
    is_function = (use.called or use.made_from) and (use.taken == 0 or "cossin" in word)
    if not (is_function or use.places > 1 or word.startswith("freqs")) or not any(part in word for part in OF_ANGLES):
        return []
    pairs = [(numbers.ones(shape), numbers.zeros(shape)) for shape in shapes]
    turns = numbers.ones(shapes[1], dtype=numbers.complex64)
    return [partial(returned, one) if is_function else one for one in (*pairs, turns)]


def without_places(name: str, library: str, width: int) -> list[Any]:
    """Return what a class may call for places, that says 0 for each: rows of a table, and with one axis less.

    It is told how many tokens there are, or which, or x itself; of two numbers it makes what is added to scores.
    """
    torch: Any = sys.modules.get("torch")
    if library != "torch" or torch is None or not any(part in plain(name) for part in OF_PLACES):
        return []

    class WithoutPlaces(torch.nn.Module):  # type: ignore[misc] # torch may be missing
        """A table of zeros, of as many rows as are asked for."""

        def __init__(self, first: tuple[int, ...]) -> None:
            super().__init__()
            self.first = first
            self.register_buffer("zero", torch.zeros(()), persistent=False)

        def forward(self, *given: Any, **named: Any) -> Any:
            asked = (*given, *named.values())
            counts = [one for one in asked if isinstance(one, int) and not isinstance(one, bool)]
            arrays = [one for one in asked if isinstance(one, torch.Tensor)]
            if arrays and not arrays[0].is_floating_point():
                return self.zero.expand(*arrays[0].shape, width)
            if len(counts) > 1 and not arrays:
                return self.zero.expand(*self.first, *self.first, *counts[:2])
            rows = arrays[0].shape[-2] if arrays else counts[0]
            return self.zero.expand(*self.first, rows, width)

    return [WithoutPlaces((1,)), WithoutPlaces(())]


OF_PLACES = ("pos", "pe", "rel", "bias", "emb")
"""Parts of names of what is called for places."""
PLACES = 256
"""Rows of a table of angles."""
OF_ANGLES = ("cossin", "freqs", "rope", "rotary")


def returned(given: Any, *_: Any, **__: Any) -> Any:
    """Return what was given beforehand."""
    return given


def found_at(library: str, path: str) -> Any:
    """Return what a library has at a path, or None where it is not loaded or has no such thing."""
    home: Any = sys.modules.get(HOMES[library])
    for step in path.split("."):
        home = getattr(home, step, None)
    return home


def unchanged(x: Any, *_: Any, **__: Any) -> Any:
    """Return what is given first."""
    return x


class Later:
    """A value that is made in the try that wants it: each try has one of its own."""

    def __init__(self, make: Any, *given: Any) -> None:
        self.make = partial(make, *given)
