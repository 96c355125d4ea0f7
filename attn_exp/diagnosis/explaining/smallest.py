"""Find the smallest input that still fails, with few tokens, heads and dimensions, and show it stage by stage.

`find_smallest_wrong` runs smaller versions of a wrong case and returns the first that is wrong too, with its answer.
`show_smallest` formats it as code to paste and as stages. `collect_answers` returns the `Answers` to explain, together
with fresh calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice, product
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case, CaseAnswer, Seen, differs, expected, predicted, tolerance
from attn_exp.diagnosis.asking.libraries import DIGITS
from attn_exp.diagnosis.asking.offer import has_heads, setup_of
from attn_exp.diagnosis.asking.questions import CROSS
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.call import Bound, Caller
from attn_exp.diagnosis.calling.signatures import Adapter
from attn_exp.diagnosis.calling.ways_to_call import Tried
from attn_exp.diagnosis.explaining.answers import Answers
from attn_exp.diagnosis.recipes.candidates import Change
from attn_exp.experiment.library_conventions import sees_nothing
from attn_exp.experiment.verdict import Cells, Smallest, Stage
from attn_exp.forms.pipeline import Given
from attn_exp.own_code import OwnFunction
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.document import Document
from attn_exp.rules.masks.mask import AllOf, AnyOf, Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.sink import Sink

DRAWS_PER_SIZE = 4
"""Number of random inputs for each size."""
MAX_CALLS = 400
"""Maximum number of smaller cases to run in search of one that fails."""
MAX_DIGITS = 20
"""Maximum number of bits to which a small case is compared: a smaller error would not be visible when printed."""
FRESH_SIZES = ((5, 13, 3), (12, 5, 10), (7, 7, 6), (2, 4, 2), (3, 3, 12))
"""Queries, keys and head size of fresh cases. None has just one query or key: its array would broadcast."""
MAX_FRESH = 5
"""Maximum number of wrong cases that are run again with these sizes."""
IMPORTS = {"numpy": "import numpy as np", "torch": "import torch", "jax": "import jax.numpy as jnp"}
CONSTRUCTORS = {"numpy": "np.array", "torch": "torch.tensor", "jax": "jnp.array"}
STAGES_SHOWN = ("q", "k", "v", "scores", "logits", "masked", "weights", "context", "output")
PRECEDING = {"masked": "logits", "output": "context"}
"""Stages that are skipped if they equal the one before."""


def find_smallest_wrong(caller: Caller, function: Bound, wrong: Seen, digits: int) -> CaseAnswer | None:
    """Return the smallest version of the first wrong case that is wrong too, with its answer, or None."""
    if function.inside is not None:
        return None
    case, _ = wrong[0]
    for small in islice(list_smaller_cases(case, caller), MAX_CALLS):
        answer = caller(small)
        if answer.output is not None and differs(answer.output, expected(small), min(digits, MAX_DIGITS)):
            return small, answer
    return None


def show_smallest(
    own: OwnFunction, caller: Caller, small: Case, answer: Answer, change: Change | None, digits: int
) -> Smallest:
    """Return the smallest case as code to paste, with its stages; `change` is the mistake that explains it, or None."""
    return replace(
        format_call(own, caller, small, answer), stages=compare_stages(small, answer, change, min(digits, MAX_DIGITS))
    )


def run_fresh_cases(caller: Caller, function: Bound, wrong: Seen) -> list[CaseAnswer]:
    """Run the wrong cases again with other sizes and inputs; an explanation must reproduce these answers too."""
    cases: list[Case] = []
    compiles_per_size = caller.library.name == "jax"  # JAX compiles again for each size
    for case in list({case.question: case for case, _ in wrong}.values())[: 2 if compiles_per_size else MAX_FRESH]:
        if function.inside is not None:
            cases += redraw_tokens(case)
        else:
            resized = (resize_case(case, caller, *sizes) for sizes in FRESH_SIZES[: 2 if compiles_per_size else None])
            cases += [fresh_case for fresh_case in resized if fresh_case is not None]
    return [(case, caller(case)) for case in cases]


def redraw_tokens(case: Case) -> Iterator[Case]:
    """Yield a layer's case with new random tokens; unless a mask fixes their number, also with fewer tokens."""
    assert case.given.x is not None
    batch, rows, width = case.given.x.shape
    is_fixed = any(isinstance(mask, Allowed) or np.size(getattr(mask, "lengths", 0)) > 1
                   for mask in case.recipe.rules.masks)  # fmt: skip
    sizes = [(batch, rows)] if is_fixed else [(batch, rows), (1, 5), (3, 4)]
    scale = max(np.abs(case.given.x).mean(), 1e-3)
    for seed, (example_count, length) in enumerate(sizes):
        rng, memory = np.random.default_rng([17, seed]), case.given.memory
        x = rng.standard_normal((example_count, length, width)) * scale
        if memory is not None:  # keep the difference between its length and that of x
            keys = max(1, length + memory.shape[1] - rows)
            memory = rng.standard_normal((example_count, keys, memory.shape[2])) * scale
        yield replace(case, given=replace(case.given, x=x, memory=memory))


def resize_case(case: Case, caller: Caller, rows: int, keys: int, size: int) -> Case | None:
    """Return the case with random inputs of about these sizes; None if the rules of the case do not fit them."""
    sizes = setup_of(case)
    if case.given.x is not None or sizes.rows == sizes.keys:
        rows = keys
    if not all(covers_sizes(mask, rows, keys) for mask in case.recipe.rules.masks):
        rows, keys = min(rows, sizes.rows), min(keys, sizes.keys)
    if caller.is_object or any(position.misfit(size) for position in case.recipe.positions):
        size = sizes.size
    resized = make_small_case(case, (sizes.heads, sizes.groups, rows, keys, size), caller.request, 0, keeps_scale=True)
    return resized if is_valid_case(resized) else None


def is_valid_case(case: Case) -> bool:
    """Return whether the rules of a case fit its sizes, and every query sees a key."""
    sizes = setup_of(case)
    rules = (*case.recipe.rules.masks, *case.recipe.rules.scores)
    is_misfit = any(rule.misfit(sizes.heads, sizes.rows, sizes.keys) for rule in rules)
    return not is_misfit and not sees_nothing(expected(case)["masked"]).any()


def list_smaller_cases(case: Case, caller: Caller) -> Iterator[Case]:
    """Yield cases like this one with fewer tokens, heads and dimensions, the smallest first."""
    sizes = setup_of(case)
    heads_to_try = {1, 2, sizes.heads} if can_choose_heads(caller) else {sizes.heads}
    head_sizes = {sizes.size} if caller.is_object else {1, 2, 4}
    choices = product(heads_to_try, range(1, 5), range(1, 5), head_sizes)
    # sorted by the number of elements in q, k and v
    counted = [(heads * (rows + 2 * keys) * size, heads, rows, keys, size) for heads, rows, keys, size in choices]
    for _, heads, rows, keys, size in sorted(counted):
        if can_have_sizes(case, heads, rows, keys, size):
            groups = heads if sizes.groups == sizes.heads else sizes.groups
            cases = (
                make_small_case(case, (heads, groups, rows, keys, size), caller.request, seed)
                for seed in range(DRAWS_PER_SIZE)
            )
            yield from filter(is_valid_case, cases)


def can_have_sizes(case: Case, heads: int, rows: int, keys: int, size: int) -> bool:
    sizes, recipe = setup_of(case), case.recipe
    is_square = case.given.x is not None or sizes.rows == sizes.keys
    can_have_tokens = not is_square or rows == keys
    can_have_heads = sizes.heads in (sizes.groups, heads)
    return can_have_tokens and can_have_heads and (
        all(covers_sizes(mask, rows, keys) for mask in recipe.rules.masks)
        and not any(position.misfit(size) for position in recipe.positions)
    )  # fmt: skip


def can_choose_heads(caller: Caller) -> bool:
    return has_heads(caller.layout) if caller.offer.core else caller.offer.takes("heads")


def covers_sizes(mask: Mask, rows: int, keys: int) -> bool:
    return not isinstance(mask, Allowed) or (rows <= mask.values.shape[-2] and keys <= mask.values.shape[-1])


def make_small_case(
    case: Case, sizes: tuple[int, int, int, int, int], request: Request, seed: int, keeps_scale: bool = False
) -> Case:
    """Return a case of these sizes with the rules of `case`, and with random integers from 0 to 3 as inputs.

    Args:
        case: a case of q, k and v, or of x and matrices.
        sizes: the numbers of heads, key/value heads, queries and keys, and the head size.
        request: determines how queries and keys are aligned.
        seed: the seed of the random generator.
        keeps_scale: draw normal numbers instead, with the batch size and magnitude of `case`.
    """
    heads, groups, rows, keys, size = sizes
    recipe = replace(case.recipe, rules=resize_rules(case, sizes, request), heads=heads, groups=groups)
    rng = np.random.default_rng([seed, *sizes])

    def draw(*shape: int) -> Array:
        return rng.standard_normal(shape) if keeps_scale else rng.integers(0, 4, shape).astype(np.float64)

    batch = setup_of(case).batch if keeps_scale else 1
    old_inputs = case.given.q if case.given.x is None else case.given.x
    scale = float(np.abs(old_inputs).mean()) or 1.0 if keeps_scale and old_inputs is not None else 1.0
    if case.given.x is None:
        q_shape, k_shape = (batch, heads, rows, size), (batch, groups, keys, size)
        return replace(case, recipe=recipe, given=Given(draw(*q_shape) * scale, draw(*k_shape), draw(*k_shape)))
    width = heads * size
    columns = {"q": width, "k": groups * size, "v": groups * size, "o": width}
    arrays = {
        name: draw(width, columns[name[-1]]) if name.startswith("W_") else draw(columns[name[-1]])
        for name in case.given.arrays
    }
    return replace(case, recipe=recipe, given=Given(x=draw(batch, rows, width) * scale, arrays=arrays))


def resize_rules(case: Case, sizes: tuple[int, int, int, int, int], request: Request) -> Rules:
    """Return the rules of a case for other sizes: cut masks and scores down, adjust a default scale and the offset."""
    heads, _, rows, keys, size = sizes
    old_sizes, rules = setup_of(case), case.recipe.rules
    masks = tuple(cut_down(mask, (heads, rows, keys), old_sizes.keys) for mask in rules.masks)
    scores = tuple(cut_down(score, (heads, rows, keys), old_sizes.keys) for score in rules.scores)
    has_default_scale = np.isclose(rules.scale, 1 / np.sqrt(old_sizes.size))
    scale = 1 / np.sqrt(size) if has_default_scale else rules.scale
    return replace(rules, masks=masks, scores=scores, scale=scale, offset=request.find_offset(masks, rows, keys))


def cut_down(rule: Any, sizes: tuple[int, int, int], old_keys: int) -> Any:
    """Cut a mask or score rule down to these numbers of heads, queries and keys; the case had `old_keys` keys.

    A padding mask that hid keys still hides some of the remaining ones. The parts of a combined mask are cut down too.
    """
    heads, rows, keys = sizes
    if isinstance(rule, Allowed | Added):
        return type(rule)(rule.values[..., :rows, :keys])
    if isinstance(rule, Padding):
        length = int(np.ravel(rule.lengths)[0])
        return Padding(max(min(length, keys - 1), min(length, 1)) if length < old_keys else keys)
    if isinstance(rule, Document):
        return Document(rule.ids[:keys])
    if isinstance(rule, AllOf | AnyOf):
        return type(rule)(tuple(cut_down(part, sizes, old_keys) for part in rule.masks))
    return Sink(np.resize(rule.logit, heads).tolist()) if isinstance(rule, Sink) else rule


def format_call(own: OwnFunction, caller: Caller, case: Case, answer: Answer) -> Smallest:
    """Return the code of a call of the user's function, with its actual and its expected output as text."""
    parameters, values_by_role = caller.offer.parameters, caller.arguments(case)
    arguments = {name: values_by_role[role] for role, name in parameters.items() if role in values_by_role}
    positional = [parameters[role] for role in caller.offer.positional]
    if isinstance(caller.function, Adapter):
        arguments = caller.function.arguments(**arguments)
        positional = list(caller.function.positional)
    module = find_module(own)
    lines = [f"from {module} import {own.name.split('.')[0]}"] * bool(module) + [IMPORTS[caller.library.name]]
    call_arguments = []
    for name, value in sorted(arguments.items(), key=lambda item: item[0] not in positional):
        is_array = hasattr(value, "shape")
        if is_array:
            lines.append(f"{name} = {format_literal(np.asarray(caller.library.back(value)), caller)}")
        call_arguments.append(("" if name in positional else f"{name}=") + (name if is_array else repr(value)))
    lines.append(f"{own.name}({', '.join(call_arguments)})")
    assert answer.output is not None
    expected_output = expected(case)["output"]
    is_shape_wrong = answer.output.shape != expected_output.shape  # then only the shapes matter
    actual, wanted = (format_array(array, is_shape_wrong) for array in (answer.output, expected_output))
    return Smallest("\n".join(lines), actual, wanted)


def format_literal(array: Array, caller: Caller) -> str:
    """Return the code that creates an array in the caller's library."""
    dtype = ", dtype=torch.float64" if caller.library.name == "torch" and array.dtype.kind not in "bi" else ""
    numbers = str(array.tolist()).replace(".0,", ".,").replace(".0]", ".]")
    return f"{CONSTRUCTORS[caller.library.name]}({numbers}{dtype})"


def find_module(own: OwnFunction) -> str:
    """Return the module from which to import the user's function."""
    target = own.target.rpartition(":")[0]
    if target and not target.endswith(".py"):
        return target
    stem = own.file.rpartition("/")[2].removesuffix(".py")
    return stem if own.file and "site-packages" not in own.file else getattr(own.function, "__module__", "") or stem


def format_array(array: Array, with_shape: bool) -> str:
    text = str(np.round(array if with_shape else np.squeeze(array), 4).tolist())
    return f"{text}, of shape {list(array.shape)}" if with_shape else text


# A case stage by stage, with actual and expected values


def compare_stages(case: Case, answer: Answer, change: Change | None, digits: int) -> tuple[Stage, ...]:
    """Return the stages of a case up to the output, with actual and expected values.

    Only the output of a function is known. The other stages are computed with the mistake `change`, if it explains the
    output.
    """
    right, actual = expected(case), find_actual_stages(case, answer, change, digits)
    repeated = [name for name, previous in PRECEDING.items() if np.array_equal(right[previous], right[name])]
    bound = max(tolerance(right, digits), 1e-9)
    names = [name for name in STAGES_SHOWN if name in right and name not in repeated]
    return tuple(compare_stage(name, right[name], actual.get(name), bound) for name in names)


def find_actual_stages(case: Case, answer: Answer, change: Change | None, digits: int) -> dict[str, Array]:
    """Return the output of the function and, if attention with the mistake `change` gives it too, all of its stages."""
    assert answer.output is not None
    output_stages = {"output": answer.output} | ({"context": answer.output} if answer.output.ndim == 4 else {})
    stages = predicted(change(case), case.given) if change is not None else None
    if stages is None or differs(answer.output, stages, digits):
        return output_stages
    return stages | output_stages


def compare_stage(name: str, expected: Array, actual: Array | None, bound: float) -> Stage:
    if actual is None:
        return Stage(name, format_cells(expected), (), False)
    is_same = expected.shape == actual.shape and np.allclose(expected, actual, rtol=1e-6, atol=bound, equal_nan=True)
    return Stage(name, format_cells(expected), format_cells(actual), not is_same)


def format_cells(array: Array) -> Cells:
    """Format an array without its batch axis: one matrix of strings per head, with four significant digits."""
    shape = array.shape[-2:] if array.ndim > 1 else (1, array.size)
    matrices = array.reshape(math.prod(array.shape[:-2]), *shape)  # the array may be empty
    return tuple(tuple(tuple(map(format_number, row)) for row in matrix) for matrix in matrices)


def format_number(number: float) -> str:
    return f"{float(number) + 0.0:.4g}".replace("inf", "∞")  # adding 0.0 turns -0.0 into 0.0


# The answers to explain


def collect_answers(
    caller: Caller, tried: Tried, seen: Seen, wrong: Seen, *, digits: int, broken: Sequence[str] = (),
    small: CaseAnswer | None = None,
) -> Answers:  # fmt: skip
    """Return the answers to explain, wrong ones first; `small` is the smallest wrong case with its answer."""
    wrong_cases = {case for case, _ in wrong}
    right = [(case, answer) for case, answer in seen if case not in wrong_cases]

    @cache  # called for every precision at which answers are compared, and each call may build a layer
    def ask() -> Seen:
        return [*run_fresh_cases(caller, tried.function, select_one_input(wrong)), *([small] if small else [])]

    return Answers(
        [*select_promised(wrong), *right], digits, DIGITS[caller.dtype], broken, ask=ask,
        wrong_with_memory=[(case, answer) for case, answer in wrong if case.question == CROSS],
    )  # fmt: skip


def select_promised(wrong: Seen) -> Seen:
    """Return the wrong answers to cases that the function must support; all wrong answers if there are none."""
    return [(case, answer) for case, answer in select_one_input(wrong) if not case.unpromised] or wrong


def select_one_input(wrong: Seen) -> Seen:
    """Return the wrong answers to cases with a single input; all wrong answers if there are none."""
    return [(case, answer) for case, answer in wrong if case.question != CROSS] or wrong
