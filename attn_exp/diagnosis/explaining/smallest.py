"""The smallest input that still fails: few tokens, heads and dimensions, integer values, shown stage by stage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, product
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Asked, Case, Seen, differs, expected, predicted, tolerance
from attn_exp.diagnosis.asking.libraries import DIGITS
from attn_exp.diagnosis.asking.offer import at_of, has_heads
from attn_exp.diagnosis.asking.questions import CROSS
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling import ways_to_call
from attn_exp.diagnosis.calling.call import Bound, Caller
from attn_exp.diagnosis.calling.signatures import Adapter
from attn_exp.diagnosis.calling.ways_to_call import Tried
from attn_exp.diagnosis.explaining.answers import Answers
from attn_exp.diagnosis.recipes.candidates import Change
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


def smallest_wrong(caller: Caller, function: Bound, wrong: Seen, digits: int) -> Asked | None:
    if function.inside is not None:
        return None
    for small in islice(smaller(wrong[0][0], caller), MOST_CALLS):
        answer = caller(small)
        if answer.output is not None and differs(answer.output, expected(small), min(digits, 20)):
            return small, answer
    return None


def shown(
    own: OwnFunction, caller: Caller, small: Case, answer: Answer, change: Change | None, digits: int
) -> Smallest:
    """Return the smallest case as code to paste, with its stages; `change` is the mistake that explains it, if any."""
    stages = stages_beside(small, answer, change, min(digits, 20))
    return replace(as_python(own, caller, small, answer), stages=stages)


FRESH = ((5, 13, 3), (12, 5, 10), (7, 7, 6), (2, 4, 2), (3, 3, 12))
"""Queries, keys and head size of cases that confirm an explanation; a single row or key would broadcast."""
RUNGS = 5


def fresh(caller: Caller, function: Bound, wrong: Seen) -> list[Asked]:
    """Run the wrong cases again with other sizes and numbers; an explanation must reproduce the new answers too."""
    asked: list[Case] = []
    few = caller.library.name == "jax"  # JAX compiles again for each size
    for case in list({case.rung: case for case, _ in wrong}.values())[: 2 if few else RUNGS]:
        if function.inside is not None:
            asked += again_inside(case)
        else:
            asked += [
                small for sizes in FRESH[: 2 if few else None] if (small := of_size(case, caller, sizes)) is not None
            ]
    return [(case, caller(case)) for case in asked]


def again_inside(case: Case) -> Iterator[Case]:
    assert case.given.x is not None
    batch, rows, width = case.given.x.shape
    masks = case.recipe.rules.masks
    fixed = any(isinstance(mask, Allowed) for mask in masks)
    of_entries = any(np.size(getattr(mask, "lengths", 0)) > 1 for mask in masks)
    others = () if fixed else ((batch, 7), (batch, 6)) if of_entries else ((1, 5), (3, 4))
    for seed, (entries, length) in enumerate(((batch, rows), *others)):
        rng, size = np.random.default_rng([17, seed]), max(np.abs(case.given.x).mean(), 1e-3)
        x, memory = rng.standard_normal((entries, length, width)) * size, case.given.memory
        if memory is not None:  # same batch size, and the same difference between memory length and length of x
            keys = max(1, length + memory.shape[1] - rows)
            memory = rng.standard_normal((entries, keys, memory.shape[2])) * size
        yield replace(case, given=replace(case.given, x=x, memory=memory))


def of_size(case: Case, caller: Caller, sizes: tuple[int, int, int]) -> Case | None:
    at, (rows, keys, size) = at_of(case), sizes
    if case.given.x is not None or at.rows == at.keys:
        rows = keys
    if not all(covers_sizes(mask, rows, keys) for mask in case.recipe.rules.masks):
        rows, keys = min(rows, at.rows), min(keys, at.keys)
    if caller.is_made or any(position.misfit(size) for position in case.recipe.positions):
        size = at.size
    small = small_case(case, (at.heads, at.groups, rows, keys, size), caller.request, 0, of_the_whole=True)
    return small if fits(small) else None


def fits(small: Case) -> bool:
    at = at_of(small)
    rules = (*small.recipe.rules.masks, *small.recipe.rules.scores)
    return (
        not any(rule.misfit(at.heads, at.rows, at.keys) for rule in rules)
        and not blind(expected(small)["masked"]).any()
    )


def smaller(case: Case, caller: Caller) -> Iterator[Case]:
    at = at_of(case)
    square = case.given.x is not None or at.rows == at.keys
    sizes = [
        (heads, rows, keys, size)
        for heads, rows, keys, size in product(
            (1, 2, at.heads) if can_choose_heads(caller) else (at.heads,),
            range(1, 5),
            range(1, 5),
            (at.size,) if caller.is_made else (1, 2, 4),
        )
        if (not square or rows == keys)
        and all(covers_sizes(mask, rows, keys) for mask in case.recipe.rules.masks)
        and at.heads in (at.groups, heads)
        and not any(position.misfit(size) for position in case.recipe.positions)
    ]
    for heads, rows, keys, size in sorted(
        set(sizes), key=lambda size: (size[0] * (size[1] + 2 * size[2]) * size[3], size)
    ):
        for seed in range(TRIES):
            shared = heads if at.groups == at.heads else at.groups
            small = small_case(case, (heads, shared, rows, keys, size), caller.request, seed)
            if fits(small):
                yield small


def can_choose_heads(caller: Caller) -> bool:
    return has_heads(caller.layout) if caller.offer.core else caller.offer.takes("heads")


def covers_sizes(mask: Mask, rows: int, keys: int) -> bool:
    return not isinstance(mask, Allowed) or (rows <= mask.values.shape[-2] and keys <= mask.values.shape[-1])


def small_case(
    case: Case, sizes: tuple[int, int, int, int, int], request: Request, seed: int, of_the_whole: bool = False
) -> Case:
    """Return a case of these sizes with integers 0 to 3; `of_the_whole`: normal numbers, batch size and scale kept."""
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
        return rng.standard_normal(shape) if of_the_whole else rng.integers(0, 4, shape).astype(np.float64)

    batch = at_of(case).batch if of_the_whole else 1
    if case.given.x is None:
        large = mean_magnitude(case.given.q) if of_the_whole else 1.0
        q, k, v = ((batch, heads, rows, size), (batch, groups, keys, size), (batch, groups, keys, size))
        given = Given(whole(*q) * large, whole(*k), whole(*v))
        return replace(case, recipe=recipe, given=given)
    width = heads * size
    columns = {"q": width, "k": groups * size, "v": groups * size, "o": width}
    arrays = {
        name: whole(width, columns[name[-1]]) if name.startswith("W_") else whole(columns[name[-1]])
        for name in case.given.arrays
    }
    large = mean_magnitude(case.given.x) if of_the_whole else 1.0
    return replace(case, recipe=recipe, given=Given(x=whole(batch, rows, width) * large, arrays=arrays))


def mean_magnitude(array: Array | None) -> float:
    return 1.0 if array is None else float(np.abs(array).mean()) or 1.0


def cut_down(rule: Any, sizes: tuple[int, int, int], whole: int) -> Any:
    """Cut a mask or score rule down to these heads, queries and keys; originally there were `whole` keys.

    A mask that hid padding still hides some of the remaining keys.
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
    parameters, given = caller.offer.parameters, caller.arguments(case)
    names = {name: value for role, name in parameters.items() if (value := given.get(role, MISSING)) is not MISSING}
    first = [parameters[role] for role in caller.offer.positional]
    if isinstance(caller.function, Adapter):
        names, first = caller.function.arguments(**names), list(caller.function.positional)
    module = module_of(own)
    lines = [f"from {module} import {own.name.split('.')[0]}"] * bool(module) + IMPORTS[caller.library.name]
    words = []
    for name, value in sorted(names.items(), key=lambda item: item[0] not in first):
        before = "" if name in first else f"{name}="
        if hasattr(value, "shape"):
            lines.append(f"{name} = {literal(np.asarray(caller.library.back(value)), caller)}")
            words.append(f"{before}{name}")
        else:
            words.append(f"{before}{value!r}")
    lines.append(f"{own.name}({', '.join(words)})")
    assert answer.output is not None
    right = expected(case)["output"]
    shaped = answer.output.shape != right.shape  # then only the shapes matter
    return Smallest("\n".join(lines), brief(answer.output, shaped), brief(right, shaped))


MISSING = object()
IMPORTS = {
    "numpy": ["import numpy as np"],
    "torch": ["import torch"],
    "jax": ["import jax.numpy as jnp"],
}
MAKERS = {"numpy": "np.array", "torch": "torch.tensor", "jax": "jnp.array"}


def literal(array: Array, caller: Caller) -> str:
    kind = "" if array.dtype.kind in "bi" else {"torch": ", dtype=torch.float64"}.get(caller.library.name, "")
    numbers = str(array.tolist()).replace(".0,", ".,").replace(".0]", ".]")
    return f"{MAKERS[caller.library.name]}({numbers}{kind})"


def module_of(own: OwnFunction) -> str:
    place = own.target.rpartition(":")[0]
    if place and not place.endswith(".py"):
        return place
    stem = own.file.rpartition("/")[2].removesuffix(".py")
    return stem if own.file and "site-packages" not in own.file else getattr(own.function, "__module__", "") or stem


def brief(array: Array, shaped: bool) -> str:
    text = str(np.round(array if shaped else np.squeeze(array), 4).tolist())
    return f"{text}, of shape {list(array.shape)}" if shaped else text


# A case stage by stage: actual values next to the expected ones

SHOWN = ("q", "k", "v", "scores", "logits", "masked", "weights", "context", "output")


def stages_beside(case: Case, answer: Answer, change: Change | None, digits: int) -> tuple[Stage, ...]:
    """Return the stages of a case up to the output, actual next to expected.

    The actual output is that of the function; if a mistake explains it, the other stages are computed with the mistake.
    """
    right = expected(case)
    mine = find_actual_stages(case, answer, change, digits)
    bound = tolerance(right, digits)
    again = {"masked": "logits", "output": "context"}  # skip a stage equal to the one before it
    shown = [
        name
        for name in SHOWN
        if name in right and not (again.get(name) in right and np.array_equal(right[again[name]], right[name]))
    ]
    return tuple(stage(name, right[name], mine.get(name), bound) for name in shown)


def find_actual_stages(case: Case, answer: Answer, change: Change | None, digits: int) -> dict[str, Array]:
    assert answer.output is not None
    last = {"output": answer.output} | ({"context": answer.output} if answer.output.ndim == 4 else {})
    stages = predicted(change(case), case.given) if change is not None else None
    if stages is None or differs(answer.output, stages, digits):
        return last
    return stages | last


def stage(name: str, right: Array, mine: Array | None, bound: float) -> Stage:
    if mine is None:
        return Stage(name, cells(right), (), False)
    room = max(bound, 1e-9)
    same = right.shape == mine.shape and np.allclose(right, mine, rtol=1e-6, atol=room, equal_nan=True)
    return Stage(name, cells(right), cells(mine), not same)


def cells(array: Array) -> Cells:
    """Format an array without its batch axis: one matrix of strings per head, with four significant digits."""
    rows = array.shape[-2:] if array.ndim > 1 else (1, array.size)
    whole = array.reshape(math.prod(array.shape[:-2]), *rows)  # the array may be empty
    return tuple(
        tuple(tuple(f"{float(number) + 0.0:.4g}".replace("inf", "∞") for number in row) for row in matrix)
        for matrix in whole
    )


# Fresh calls of a function that answered wrongly: an explanation must reproduce their outputs too


def evidence_of(
    caller: Caller, tried: Tried, seen: Seen, wrong: Seen, *, digits: int, broken: Sequence[str] = (),
    small: Asked | None = None,
) -> Answers:  # fmt: skip
    function, lost = tried.function, {case for case, _ in wrong}
    right = [pair for pair in seen if pair[0] not in lost]

    @cache  # every view calls this, and each call would build a layer again
    def ask() -> Seen:
        return [*fresh(caller, function, of_one_input(wrong)), *([small] if small else [])]

    def ask_equal() -> Asked | None:
        return of_equal_scores(caller, function, ways_to_call.rounded(tried.case, caller), seen)

    return Answers(
        [*promised(wrong), *right], digits, DIGITS[caller.dtype], broken, ask=ask, ask_equal=ask_equal,
        crossed=[pair for pair in wrong if pair[0].rung == CROSS],
    )  # fmt: skip


def promised(wrong: Seen) -> Seen:
    """Return the wrong answers to inputs that the function must support, or all wrong answers if there are none."""
    return [(case, answer) for case, answer in of_one_input(wrong) if not case.unpromised] or wrong


def of_one_input(wrong: Seen) -> Seen:
    return [(case, answer) for case, answer in wrong if case.rung != CROSS] or wrong


def of_equal_scores(caller: Caller, function: Bound, case: Case, seen: Seen) -> Asked | None:
    if caller.offer.core:
        return next((pair for pair in seen if pair[0].rung == "equal inputs"), None)
    if function.inside is not None:  # the module has its own weights
        return None
    arrays = {
        name: np.zeros_like(array) if name in ("W_q", "b_q") else array for name, array in case.given.arrays.items()
    }
    other = replace(case, given=replace(case.given, arrays=arrays))
    return other, caller(other)
