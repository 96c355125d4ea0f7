"""Functions of x alone, or of queries and of what is attended to, that hold no matrices: values are the keys alone.

They are asked as a layer is whose matrices are those of no change. Which of two inputs are the queries, and which axes
they have, an answer tells: it has a row for each query, made of the rows of the other input.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.offer import Offer, is_required, is_starred, role_of, told
from attn_exp.diagnosis.asking.questions import Inside
from attn_exp.diagnosis.code.libraries import library, stack, wanted
from attn_exp.diagnosis.code.returned import parts_of
from attn_exp.diagnosis.finding.adapting import MASKS, NOMINAL, PASSED, Making, targets
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.own_code import LeftError, held

QUERIES, KEYS, WIDTHS = 7, 5, (8, 48)
"""Tokens of a first call, and how many numbers each may have."""
FORMS = (("btm", "bsm"), ("tbm", "sbm"), ("tm", "sm"), ("bm", "bsm"), ("bm", "sbm"), ("1bm", "sbm"), ("m", "sm"))
"""How queries lie, and what is attended to: without t each query is a call, without b each entry."""
SAID = "as a layer whose queries, keys and values are its inputs themselves"


@dataclass(frozen=True)
class Plain:
    """A function of one or two inputs as a layer of x `[b t m]` and a memory `[b s m]`."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    axes: tuple[str, str]

    def __call__(self, x: Any, memory: Any = None, **named: Any) -> Any:
        other = x if memory is None else memory
        if "b" not in self.axes[0]:
            return stack([self.of_entries(x[at : at + 1], other[at : at + 1], named) for at in range(len(x))], 0)
        return self.of_entries(x, other, named)

    def of_entries(self, x: Any, other: Any, named: dict[str, Any]) -> Any:
        """Return the answers `[b t m]`, or `[t m]` where no axis is one of entries."""
        if "t" in self.axes[0]:
            return self.answer(laid(x, "btm", self.axes[0]), other, named)
        rows = [self.answer(laid(x[:, at], "bm", self.axes[0]), other, {
            name: of_query(mask, at) for name, mask in named.items()}) for at in range(x.shape[1])]  # fmt: skip
        return stack(rows, 1 if "b" in self.axes[0] else 0)

    def answer(self, queries: Any, other: Any, named: dict[str, Any]) -> Any:
        """Return the first array that a call returns, with entries first."""
        given = [queries, laid(other, "bsm", self.axes[1])][: len(self.names)]
        said = self.function(**dict(zip(self.names, given, strict=True)), **named)
        array = next(iter(parts_of(said).values()))
        if self.axes[0] == "tbm":
            return array.swapaxes(0, 1)
        return array[0] if self.axes[0] == "1bm" else array


def laid(array: Any, before: str, after: str) -> Any:
    """Return an array with its axes in another order, without that of entries, or with one of a single place."""
    if "b" not in after:
        return array[0]
    if after == "1bm":
        return array[None]
    return array if before == after else array.swapaxes(0, 1)


def of_query(mask: Any, at: int) -> Any:
    """Return what a mask `[t s]` or `[b t s]` says of one query; all else as it is."""
    axes = len(getattr(mask, "shape", ()))
    return mask[at : at + 1] if axes == len("ts") else mask[:, at] if axes == len("bts") else mask


def bounds(function: Any, name: str, device: str, causal: bool = False) -> Iterator[Bound]:
    """Yield a function, or a class of objects that hold no numbers, as a layer without matrices, if it is one.

    A class that is told whether it is `causal` is told that it is.
    """
    for called, parameters in targets(function, name, causal):
        usable = [given for given in parameters if not is_starred(given)]
        owned = masks_of_inputs(usable)
        passed = {role_of(given.name): given for given in usable
                  if role_of(given.name) in PASSED and given.name not in owned}  # fmt: skip
        inputs = [given.name for given in usable
                  if is_required(given) and given not in passed.values() and given.name not in owned]  # fmt: skip
        if not 1 <= len(inputs) <= len("xy"):
            continue
        made = called.of(NOMINAL) if isinstance(called, Making) else called
        needed = [role for role, given in passed.items() if is_required(given)]
        if any(role not in (*MASKS, "lengths") for role in needed):
            continue
        for word in wanted(function):
            words = {passed[role].name: role for role in needed}
            found = next(of_library(made, inputs, word, device, words, owned), None)
            if found is not None:
                plain, width = found
                by_name = {given.name: given for given in usable}
                passed |= {OF_SIDES[plain.names.index(whose)]: by_name[mask] for mask, whose in owned.items()}
                both = {"memory": "memory"} if len(inputs) > 1 else {}
                taken = {"x": "x", **both, **{role: given.name for role, given in passed.items()}}
                defaults = {role: told(given.default) for role, given in passed.items() if not is_required(given)}
                offer = Offer(False, taken, (), {**dict.fromkeys(both), **defaults}, said=said_of(plain),
                              unscaled=bool(both) and "t" not in plain.axes[0])  # fmt: skip
                arrays = {matrix: np.eye(width) for matrix in ("W_q", "W_k", "W_v")}
                yield Bound(plain, function, offer, Inside(arrays, 1, 1))
                return


def masks_of_inputs(usable: Sequence[inspect.Parameter]) -> dict[str, str]:
    """Return which needed masks are those of which needed inputs, whose names they begin with, where each has one."""
    needed = [given.name for given in usable if is_required(given)]
    masks = [name for name in needed if role_of(name) == "mask"]
    owned = {mask: name for mask in masks for name in needed if name not in masks and mask.startswith(name)}
    return owned if len(masks) == len("xy") and len(set(owned.values())) == len(masks) else {}


OF_SIDES = ("query_padding", "padding")
"""What a mask of the queries, and one of what is attended to, is a word for."""


def said_of(plain: Plain) -> str:
    """Say how a function is asked."""
    alone = ", with one query in each call" if "t" not in plain.axes[0] else ""
    return f"{SAID}{alone}"


def of_library(
    function: Callable[..., Any], inputs: Sequence[str], word: str, device: str, words: Mapping[str, str],
    owned: Mapping[str, str],
) -> Iterator[tuple[Plain, int]]:  # fmt: skip
    """Yield how a function is called that answers with a row for each query, made of the rows of its other input."""
    lent = library(word, device)
    for width in WIDTHS:
        x, other = (np.random.default_rng(89).standard_normal((2, count, width)) for count in (QUERIES, KEYS))
        for axes in FORMS:
            for names in permutations(inputs):
                plain = Plain(function, names, axes)
                memory = other if len(names) > 1 else x
                given = [lent.into(array, lent.widest) for array in (x, memory)]
                for masks in open_masks(words, owned, dict(zip(names, (x, memory), strict=False)), memory):
                    named = {name: lent.into(mask, lent.widest) for name, mask in masks.items()}
                    try:
                        with held():
                            said = lent.back(plain(*given, **named))
                    except (Exception, LeftError):
                        continue
                    if said.shape == x.shape and are_of(said, memory, lent.widest):
                        yield plain, width


def open_masks(
    words: Mapping[str, str], owned: Mapping[str, str], inputs: Mapping[str, Array], memory: Array
) -> Iterator[dict[str, Array]]:  # fmt: skip
    """Yield the masks and lengths of a call that hide nothing; those of one input each may hide where they are True."""
    whole = np.full(len(memory), memory.shape[1], np.int64)
    usual = {name: whole if role == "lengths" else np.ones((QUERIES, memory.shape[1]), bool)
             for name, role in words.items()}  # fmt: skip
    for seen in (True, False) if owned else (True,):
        yield usual | {name: np.full(inputs[whose].shape[:2], seen) for name, whose in owned.items()}


def are_of(answer: Array, rows: Array, kind: str) -> bool:
    """Say whether each row of an answer is made of several rows of the other input."""
    if not np.isfinite(answer).all():
        return False
    for one, other in zip(answer, rows, strict=True):
        shares, *_ = np.linalg.lstsq(other.T, one.T, rcond=None)
        close = np.allclose(shares.T @ other, one, atol=1e-9 if kind == "float64" else 1e-4)
        if not close or (np.abs(shares) > FEW * np.abs(shares).max()).sum(axis=0).min() < len("ts"):
            return False
    return True


FEW = 1e-6
