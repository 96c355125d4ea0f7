"""Write a case of a check as a command: a run on the same input, under the same rules."""

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
"""Settings that a case overrides, whatever the user typed: its masks, scores, sizes and inputs."""


def command(form: str, case: Case, request: Request) -> str:
    """Return the command that runs `form` and the reference on a case's input; empty if no run can repeat it.

    A run applies positions to queries and keys before it calls a function of heads; in a check the function does that.
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
    """Return the settings for the number of heads and for W_o."""
    heads = case.recipe.heads
    words = [f"head={heads}", *([f"variant.matrix.head={heads}"] if heads > 1 else [])]
    if case.given.x is not None and case.recipe.output_projection:
        words.append("variant.matrix.output_projection=true")  # a function that takes W_o is compared with this anyway
    return words


def input_words(case: Case) -> list[str]:
    """Return the input of a case as settings of a run."""
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
    """Return whether a value can be written as a Python literal: None, booleans, strings, finite numbers, lists."""
    if isinstance(value, tuple | list):
        return all(map(is_plain_value, value))
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def numbers(array: Array) -> str:
    """Return an array as nested lists, written compactly."""
    return str(array.tolist()).replace(".0,", ".,").replace(".0]", ".]")


def scale_words(case: Case) -> list[str]:
    """Return the setting for the scale, unless it is the default `d^-1/2`."""
    scale = float(case.recipe.rules.scale)
    if np.isclose(scale, at_of(case).size ** -0.5, rtol=1e-12):
        return []
    return ["scale=false" if scale == 1 else f"scale={scale!r}"]


def mask_words(case: Case, request: Request) -> list[str]:
    """Return the masks of a case as settings by name; those without a name, or repeated, become one array."""
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
    """Return the name of a mask in the settings; `Filler` is padding too."""
    return "padding" if isinstance(mask, Filler) else registry.name_of(mask)


def settings_of_mask(mask: Mask, case: Case, request: Request) -> dict[str, Any]:
    """Return the settings of a mask for the number of keys in the case."""
    if isinstance(mask, Filler):
        kept = np.resize(mask.kept, at_of(case).keys)
        return {"keys": ~kept if request.blocks else kept}
    return {"lengths": int(np.ravel(mask.lengths)[0])} if isinstance(mask, Padding) else settings_of(mask)


def seen(mask: Mask, case: Case) -> Array:
    """Return where a mask allows attention, `[t s]` if all heads share it, else `[h t s]`."""
    at = at_of(case.with_masks((mask,)))
    whole: Array = np.broadcast_to(allowed(at), (at.batch, at.heads, at.rows, at.keys))[0]
    return whole[0] if (whole == whole[:1]).all() else whole


def score_words(case: Case) -> list[str]:
    """Return the score rules of a case as settings."""
    return group_words("score", {registry.name_of(rule): settings_of(rule) for rule in case.recipe.rules.scores})


def group_words(group: str, rules: dict[str, dict[str, Any]]) -> list[str]:
    """Return the settings that choose the rules of a group, with their values."""
    if not rules:
        return []
    settings = [
        f"{group}.{name}.{key}={spelled(plain(value))}" for name, given in rules.items() for key, value in given.items()
    ]
    return [f"{group}={next(iter(rules))}" if len(rules) == 1 else f"{group}=[{','.join(rules)}]", *settings]


def settings_of(rule: Any) -> dict[str, Any]:
    """Return the settings of a rule that differ from their defaults."""
    return dict(changed(rule)) if is_dataclass(rule) else {}


def changed(rule: Any) -> Iterator[tuple[str, Any]]:
    """Yield each field of a rule that differs from its default, with its value."""
    for field in fields(rule):
        value = getattr(rule, field.name)
        usual = field.default if field.default is not MISSING else None
        if field.init and value is not None and (isinstance(value, np.ndarray) or value != usual):
            yield field.name, value


def plain(value: Any) -> Any:
    """Convert arrays and NumPy scalars to lists and Python numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
