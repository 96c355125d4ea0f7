"""A case of a check as a command: a run on the same input, under the rules of this very case."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import numpy as np

from attn_exp import registry
from attn_exp.arrays import Array
from attn_exp.config.spelling import key_of, spelled
from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.offer import at_of
from attn_exp.diagnosis.asking.request import Filler, Request
from attn_exp.forms.steps import allowed
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.mask import AllOf, AnyOf, Mask
from attn_exp.rules.masks.padding import Padding

OF_THE_CASE = ("mask", "mask_join", "score", "scale", "head", "kv_head", "seed", "embeddings", "projections", "bias")
"""Settings that a case says anew, whatever the check was asked: its masks, scores and sizes are its own."""


def command(form: str, case: Case, request: Request) -> str:
    """Return the command of a run of `form` beside the right one on the input of a case; nothing where none repeats it.

    A run marks positions in queries and keys before it calls a function of heads, which a check leaves to the function.
    """
    if case.given.x is None and case.recipe.positions:
        return ""
    files = [word for file in registry.files() for word in ("--with", file)]
    kept = [word for word in sorted(request.typed) if key_of(word).partition(".")[0] not in OF_THE_CASE]
    words = [
        *input_words(case),
        *scale_words(case),
        *mask_words(case, request),
        *score_words(case),
        *kept,
        "variant=[matrix,mine]",
        f"variant.mine.form={form}",
        *head_words(case),
    ]
    return " ".join(["python -m attn_exp", *map(shlex.quote, [*files, *words])])


def head_words(case: Case) -> list[str]:
    """Return how many heads there are, and whether they go through W_o."""
    heads = case.recipe.heads
    words = [f"head={heads}", *([f"variant.matrix.head={heads}"] if heads > 1 else [])]
    if case.given.x is not None and case.recipe.output_projection:
        words.append("variant.matrix.output_projection=true")  # a function that takes W_o is held to that anyway
    return words


def input_words(case: Case) -> list[str]:
    """Return the input of a case in the words of a run."""
    if case.given.x is not None:
        arrays = [f"+projections.given.{name}={numbers(array)}" for name, array in case.given.arrays.items()]
        bias = ["bias=true"] if any(name.startswith("b_") for name in case.given.arrays) else []
        vectors = f"embeddings.vectors={numbers(case.given.x[0])}"
        return ["embeddings=inline", vectors, "projections=identity", *arrays, *bias]
    flat = {
        side: np.asarray(getattr(case.given, side))[0].swapaxes(0, 1).reshape(getattr(case.given, side).shape[2], -1)
        for side in "qkv"
    }
    return [
        "embeddings=inline",
        "projections=none",
        *(f"embeddings.{side}={numbers(array)}" for side, array in flat.items()),
    ]


def is_plain_value(value: Any) -> bool:
    """Say whether a value can be written as Python: no number that is infinite, and nothing but numbers and texts."""
    if isinstance(value, tuple | list):
        return all(map(is_plain_value, value))
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def numbers(array: Array) -> str:
    """Return nested lists in short."""
    return str(array.tolist()).replace(".0,", ".,").replace(".0]", ".]")


def scale_words(case: Case) -> list[str]:
    """Return the scale, where it is not the usual one."""
    scale = float(case.recipe.rules.scale)
    if np.isclose(scale, at_of(case).size ** -0.5, rtol=1e-12):
        return []
    return ["scale=false" if scale == 1 else f"scale={scale!r}"]


def mask_words(case: Case, request: Request) -> list[str]:
    """Return the masks of a case by their names; those that have none, or the same one twice, become one array."""
    parts, join = case.recipe.rules.masks, "and"
    if len(parts) == 1 and isinstance(parts[0], AnyOf):
        parts, join = parts[0].masks, "or"
    named: dict[str, dict[str, Any]] = {}
    rest: list[Mask] = []
    for part in parts:
        name = "" if isinstance(part, AllOf | AnyOf | Allowed) else name_of_mask(part)
        if name and name not in named:
            named[name] = settings_of_mask(part, case, request)
        else:
            rest.append(part)
    if rest:
        whole = seen(AnyOf(tuple(rest)) if join == "or" else AllOf(tuple(rest)), case)
        named["array"] = {"values": ~whole if request.blocks else whole}
    return [*group_words("mask", named), *(["mask_join=or"] if join == "or" else [])]


def name_of_mask(mask: Mask) -> str:
    """Return what settings call a mask; filler of any length is padding."""
    return "padding" if isinstance(mask, Filler) else registry.name_of(mask)


def settings_of_mask(mask: Mask, case: Case, request: Request) -> dict[str, Any]:
    """Return the settings of a mask, for as many keys as the case has."""
    if isinstance(mask, Filler):
        kept = np.resize(mask.kept, at_of(case).keys)
        return {"keys": ~kept if request.blocks else kept}
    return {"lengths": int(np.ravel(mask.lengths)[0])} if isinstance(mask, Padding) else settings_of(mask)


def seen(mask: Mask, case: Case) -> Array:
    """Return which places a mask allows, `[t s]` where all heads share it, else `[h t s]`."""
    at = at_of(case.with_masks((mask,)))
    whole: Array = np.broadcast_to(allowed(at), (at.batch, at.heads, at.rows, at.keys))[0]
    return whole[0] if (whole == whole[:1]).all() else whole


def score_words(case: Case) -> list[str]:
    """Return the score rules of a case by their names."""
    return group_words("score", {registry.name_of(rule): settings_of(rule) for rule in case.recipe.rules.scores})


def group_words(group: str, rules: dict[str, dict[str, Any]]) -> list[str]:
    """Return the words that choose rules of a group, with their settings."""
    if not rules:
        return []
    settings = [
        f"{group}.{name}.{key}={spelled(plain(value))}" for name, given in rules.items() for key, value in given.items()
    ]
    return [f"{group}={next(iter(rules))}" if len(rules) == 1 else f"{group}=[{','.join(rules)}]", *settings]


def settings_of(rule: Any) -> dict[str, Any]:
    """Return the settings of a rule that are not their defaults."""
    return dict(changed(rule)) if is_dataclass(rule) else {}


def changed(rule: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a rule that are not as usual, each with its value."""
    for field in fields(rule):
        value = getattr(rule, field.name)
        usual = field.default if field.default is not MISSING else None
        if field.init and value is not None and (isinstance(value, np.ndarray) or value != usual):
            yield field.name, value


def plain(value: Any) -> Any:
    """Return arrays and their numbers as lists and Python's numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
