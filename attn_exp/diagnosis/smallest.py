"""The smallest input that still fails: few tokens, heads and dimensions, and round numbers, stage by stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.case import Answer, Case, differs, expected, predicted, tolerance
from attn_exp.diagnosis.modules import Bound
from attn_exp.diagnosis.offer import at_of, for_case
from attn_exp.diagnosis.repeat import command, numbers
from attn_exp.diagnosis.request import Request
from attn_exp.experiment.library_conventions import blind
from attn_exp.experiment.verdict import Cells, Smallest, Stage
from attn_exp.forms.pipeline import Given
from attn_exp.own_code import OwnFunction
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.document import Document
from attn_exp.rules.masks.mask import AllOf, AnyOf, Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.sink import Sink

TRIES = 4
MOST_CALLS = 400


def shrunk(
    own: OwnFunction,
    caller: Caller,
    function: Bound,
    wrong: list[tuple[Case, Answer]],
    digits: int,
    names: Sequence[str] = (),
) -> Smallest | None:
    """Return the smallest case that is still answered wrongly, ready to paste; None where small ones are all right."""
    if function.inside is not None:
        return None
    case = wrong[0][0]
    for count, small in enumerate(smaller(case, caller)):
        if count > MOST_CALLS:
            break
        answer = caller(small)
        if answer.output is not None and differs(answer.output, expected(small), min(digits, 20)):
            stages = stages_beside(small, answer, names, min(digits, 20))
            return replace(as_python(own, caller, small, answer), stages=stages)
    return None


def smaller(case: Case, caller: Caller) -> Iterator[Case]:
    """Yield cases of the same kind, the smallest first."""
    at = at_of(case)
    square = case.given.x is not None or at.rows == at.keys
    sizes = [
        (heads, rows, keys, size)
        for heads, rows, keys, size in product((1, 2, at.heads), range(1, 5), range(1, 5), (1, 2, 4))
        if (not square or rows == keys)
        and all(reaches(mask, rows, keys) for mask in case.recipe.rules.masks)
        and at.heads in (at.groups, heads)
        and not any(position.misfit(size) for position in case.recipe.positions)
    ]
    for heads, rows, keys, size in sorted(
        set(sizes), key=lambda size: (size[0] * (size[1] + 2 * size[2]) * size[3], size)
    ):
        for seed in range(TRIES):
            shared = heads if at.groups == at.heads else at.groups
            small = small_case(case, (heads, shared, rows, keys, size), caller.request, seed)
            rules = (*small.recipe.rules.masks, *small.recipe.rules.scores)
            if not any(rule.misfit(heads, rows, keys) for rule in rules) and not blind(expected(small)["masked"]).any():
                yield small


def reaches(mask: Mask, rows: int, keys: int) -> bool:
    """Say whether a mask reaches so far: written ones have sizes of their own."""
    return not isinstance(mask, Allowed) or (rows <= mask.values.shape[-2] and keys <= mask.values.shape[-1])


def small_case(case: Case, sizes: tuple[int, int, int, int, int], request: Request, seed: int) -> Case:
    """Return a case of these sizes, with whole numbers from 0 to 3."""
    heads, groups, rows, keys, size = sizes
    rng = np.random.default_rng([seed, *sizes])
    old = case.recipe.rules
    usual = np.isclose(old.scale, 1 / np.sqrt(at_of(case).size))
    masks, scores = (
        tuple(cut_down(rule, (heads, rows, keys), at_of(case).keys) for rule in rules)
        for rules in (old.masks, old.scores)
    )
    last = AllOf(masks).unpadded(keys) if request.align == "before_filler" else keys
    offset = 0 if request.align == "top_left" else last - rows
    rules = replace(old, masks=masks, scores=scores, scale=1 / np.sqrt(size) if usual else old.scale, offset=offset)
    recipe = replace(case.recipe, rules=rules, heads=heads, groups=groups)

    def whole(*shape: int) -> Array:
        return rng.integers(0, 4, shape).astype(np.float64)

    if case.given.x is None:
        given = Given(whole(1, heads, rows, size), whole(1, groups, keys, size), whole(1, groups, keys, size))
        return replace(case, recipe=recipe, given=given)
    width = heads * size
    columns = {"q": width, "k": groups * size, "v": groups * size, "o": width}
    arrays = {
        name: whole(width, columns[name[-1]]) if name.startswith("W_") else whole(columns[name[-1]])
        for name in case.given.arrays
    }
    return replace(case, recipe=recipe, given=Given(x=whole(1, rows, width), arrays=arrays))


def cut_down(rule: Any, sizes: tuple[int, int, int], whole: int) -> Any:
    """Return a mask or a score rule as it is for fewer heads, queries and keys, where there were `whole` keys.

    A mask that hid filler hides some of the few keys too.
    """
    heads, rows, keys = sizes
    if isinstance(rule, Allowed | Added):
        return type(rule)(rule.values[..., :rows, :keys])
    if isinstance(rule, Padding):
        length = int(np.ravel(rule.lengths)[0])
        return Padding(max(min(length, keys - 1), min(length, 1)) if length < whole else keys)
    if isinstance(rule, Document):
        return Document(rule.ids[:keys])
    if isinstance(rule, AllOf | AnyOf):
        return type(rule)(tuple(cut_down(part, sizes, whole) for part in rule.masks))
    return Sink(np.resize(rule.logit, heads).tolist()) if isinstance(rule, Sink) else rule


def as_python(own: OwnFunction, caller: Caller, case: Case, answer: Answer) -> Smallest:
    """Return a case as Python to paste, and as a command."""
    order = list(caller.offer.parameters)
    roles = dict(sorted(caller.arguments(case).items(), key=lambda item: order.index(item[0])))
    extra = for_case(case, caller.offer, caller.request)
    back = caller.library.back
    lines = [f"from {module_of(own)} import {own.name.split('.')[0]}", *IMPORTS[caller.library.name]]
    words = []
    for role, value in roles.items():
        name = caller.offer.parameters[role]
        before = "" if role in caller.offer.positional else f"{name}="
        if hasattr(value, "shape"):
            lines.append(f"{name} = {literal(back(value) if role not in extra else np.asarray(back(value)), caller)}")
            words.append(f"{before}{name}")
        else:
            words.append(f"{before}{value!r}")
    lines.append(f"{own.name}({', '.join(words)})")
    assert answer.output is not None
    form, right = own.target or f"{own.file or module_of(own)}:{own.name}", expected(case)["output"]
    shaped = answer.output.shape != right.shape  # then the shapes are what is wrong
    repeat = command(form, case, caller.request)
    return Smallest("\n".join(lines), repeat, brief(answer.output, shaped), brief(right, shaped))


IMPORTS = {
    "numpy": ["import numpy as np"],
    "torch": ["import torch"],
    "jax": ["import jax.numpy as jnp"],
}
MAKERS = {"numpy": "np.array", "torch": "torch.tensor", "jax": "jnp.array"}


def literal(array: Array, caller: Caller) -> str:
    """Return an array as the library writes it."""
    kind = "" if array.dtype.kind in "bi" else {"torch": ", dtype=torch.float64"}.get(caller.library.name, "")
    return f"{MAKERS[caller.library.name]}({numbers(array)}{kind})"


def module_of(own: OwnFunction) -> str:
    """Return the name by which a function is imported."""
    stem = own.file.rpartition("/")[2].removesuffix(".py")
    return stem if own.file and "site-packages" not in own.file else getattr(own.function, "__module__", "") or stem


def brief(array: Array, shaped: bool) -> str:
    """Return an answer to four decimals: without its axes of length 1, or with its shape."""
    text = str(np.round(array if shaped else np.squeeze(array), 4).tolist())
    return f"{text}, of shape {list(array.shape)}" if shaped else text


# A case stage by stage, what the function makes of it beside what is right

SHOWN = ("q", "k", "v", "scores", "logits", "masked", "weights", "context", "output")


def stages_beside(case: Case, answer: Answer, names: Sequence[str], digits: int) -> tuple[Stage, ...]:
    """Return the stages of a case up to the output.

    A function's own stages are those that it returns. Where a mistake explains its output, all others are those that
    the mistake makes.
    """
    right = expected(case)
    mine = guessed(case, answer, names, digits)
    bound = tolerance(right, digits)
    again = {"masked": "logits", "output": "context"}  # told by the one before it, where they are the same
    shown = [
        name
        for name in SHOWN
        if name in right and not (again.get(name) in right and np.array_equal(right[again[name]], right[name]))
    ]
    return tuple(stage(name, right[name], mine.get(name), bound) for name in shown)


def guessed(case: Case, answer: Answer, names: Sequence[str], digits: int) -> dict[str, Array]:
    """Return the function's own stages, as far as they are known."""
    assert answer.output is not None
    last = {"output": answer.output} | ({"context": answer.output} if answer.output.ndim == 4 else {})
    try:
        recipe = mistakes.applied(names, case.recipe) if names else None
    except ValueError:  # a mistake that shows only between several calls
        recipe = None
    stages = predicted(recipe, case.given) if recipe is not None else None
    if stages is None or differs(answer.output, stages, digits):
        return last
    return stages | last


def stage(name: str, right: Array, mine: Array | None, bound: float) -> Stage:
    """Return one stage; where its own numbers have another shape they are shown all the same."""
    if mine is None:
        return Stage(name, cells(right), (), False)
    room = max(bound, 1e-9)
    same = right.shape == mine.shape and np.allclose(right, mine, rtol=1e-6, atol=room, equal_nan=True)
    return Stage(name, cells(right), cells(mine), not same)


def cells(array: Array) -> Cells:
    """Return an array without its batch as one matrix of texts for each head, to four digits."""
    whole = array.reshape(-1, *array.shape[-2:]) if array.ndim > 1 else array.reshape(1, 1, -1)
    return tuple(
        tuple(tuple(f"{float(number) + 0.0:.4g}".replace("inf", "∞") for number in row) for row in matrix)
        for matrix in whole
    )
