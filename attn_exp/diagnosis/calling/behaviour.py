"""Check behaviour that one call cannot show: determinism, unchanged inputs, independent examples, thread safety.

Other checks look for state that is kept between calls, wrong gradients, and NaN that passes through a mask.

Each check takes a caller and a case on which the function is right, and calls the function a few times. It returns a
finding for one row ("question") of the report, and the name of the mistake in the catalogue ("" if it has none).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import (
    Answer,
    Case,
    differs,
    expected,
    make_other_data,
    predicted,
    same_answer,
    same_numbers,
)
from attn_exp.diagnosis.asking.libraries import DIGITS, collect_arrays, module_of
from attn_exp.diagnosis.asking.offer import setup_of
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.errors import first_line
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, REMARK, Finding
from attn_exp.own_code import guard_process
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.padding import Padding

Found = tuple[Finding, str]
"""A finding, and the name of its mistake in the catalogue ("" if it has none)."""
TWICE = "the same answer twice"
IN_THREADS = "two threads at once"
DROPOUT = {"bernoulli", "native_dropout"}
"""PyTorch operations that drop numbers at random."""
WITHOUT_GRADIENTS = "no_grad"
"""Added to the names of operations if any of them runs with gradients disabled."""
QUANTIZATION = 0.05
"""Largest difference that quantization may cause, relative to the largest number of the answer."""
THREAD_TIMEOUT = 20.0
"""Seconds to wait for the second thread to start."""
LATER_CALLS = 4
"""Number of later calls that must not overwrite an earlier answer; some functions use several buffers in turn."""
CACHED_BY_ADDRESS = "it caches by the address of its inputs, and returns an old answer"


def check_behaviour(caller: Caller, case: Case, digits: int) -> Iterator[Found]:
    checks = (
        check_determinism, check_inputs_unchanged, check_answer_kept, check_same_address, check_one_input_changed,
        check_batch_independence, check_memory_layout, check_threads,
        *([check_second_mask] if caller.offer.takes("mask") else []),
    )  # fmt: skip
    yield from (check(caller, case, digits) for check in checks)


def pass_if(is_right: bool, question: str, message: str, mistake: str = "") -> Found:
    return (Finding(question, HELD), "") if is_right else (Finding(question, BROKEN, message), mistake)


def check_determinism(caller: Caller, case: Case, digits: int) -> Found:
    first, *others = answers = [caller(case) for _ in range(3)]
    if find_failure(answers):
        return Finding(TWICE, BROKEN, find_failure(answers)), ""
    if all(same_numbers(first.output, other.output) for other in others):
        return Finding(TWICE, HELD), ""
    if all(same_answer(first, other, case, digits) for other in others):
        return Finding(TWICE, BROKEN, "the last digits differ from call to call"), "not_deterministic"
    name = "dropout_on" if find_operations(caller, case) & DROPOUT else "not_deterministic"
    return Finding(TWICE, BROKEN, "the same call gave different answers"), name


def find_failure(answers: Iterable[Answer]) -> str:
    return next((f"one call gave no answer: {answer.error}" for answer in answers if answer.output is None), "")


def find_operations(caller: Caller, case: Case) -> set[str]:
    """Return the names of the PyTorch operations in a call, plus `WITHOUT_GRADIENTS` if any ran without gradients."""
    if caller.library.name != "torch":
        return set()
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - the function has imported torch

    names = set[str]()

    class OperationNames(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.add(function.__name__.partition(".")[0].rstrip("_"))
            if not module_of("torch").is_grad_enabled():
                names.add(WITHOUT_GRADIENTS)
            return function(*args, **(kwargs or {}))

    with OperationNames():
        caller(case)
    return names


def check_inputs_unchanged(caller: Caller, case: Case, _digits: int) -> Found:
    """Check that a call leaves its arrays and masks unchanged, even if it fails."""
    question, changed, answers = "inputs unchanged", list[str](), list[Answer]()
    for variant in (case, *add_masks(caller, case)):
        arguments = caller.arguments(variant)
        before = copy_arrays(caller, arguments)
        answers.append(caller.answer(arguments, variant))
        after = copy_arrays(caller, arguments)
        changed += [role for role, array in after.items() if not same_numbers(array, before[role])]
    if changed:
        return Finding(question, BROKEN, f"it changed {', '.join(dict.fromkeys(changed))}"), "changes_inputs"
    failure = find_failure(answers[:1])  # the function may refuse the masks that were added
    return Finding(question, BROKEN if failure else HELD, failure), ""


def add_masks(caller: Caller, case: Case) -> list[Case]:
    """Return one case per mask that the function takes (a mask, padding, causality), and one with all of them."""
    keys = setup_of(case).keys
    added = {"mask": Allowed(two_masks(case)[0]), "padding": Padding(keys - 1), "causal": Causal()}
    masks = [mask for role, mask in added.items() if caller.offer.takes(role) and keys > 1]
    choices = [[mask] for mask in masks] + [masks] * (len(masks) > 1)
    return [case.with_masks((*case.recipe.rules.masks, *chosen)) for chosen in choices]


def copy_arrays(caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Array]:
    return {role: np.array(caller.library.back(value)) for role, value in arguments.items() if hasattr(value, "shape")}


def check_batch_independence(caller: Caller, case: Case, digits: int) -> Found:
    question = "examples independent"
    batch = caller(case)
    if batch.output is None or len(batch.output) < 2 or batch.output.shape != expected(case)["output"].shape:
        return Finding(question, ABSENT), ""
    for number in range(len(batch.output)):
        example = cut_example(case, number)
        alone, in_batch = caller(example), batch.output[number : number + 1]
        if alone.output is None:
            return Finding(question, ABSENT, alone.error), ""
        if bool(alone.axes) != bool(batch.axes):
            return Finding(
                question, BROKEN, f"example {number + 1} alone gives different axes: {alone.axes or batch.axes}"
            ), ""
        if not same_answer(alone, Answer(in_batch), example, digits):
            name = "batch_mixed" if exceeds_quantization(alone.output, in_batch) else ""
            return Finding(
                question, BROKEN, f"example {number + 1} gives a different answer alone than in its batch"
            ), name
    return Finding(question, HELD), ""


def exceeds_quantization(alone: Array, in_batch: Array) -> bool:
    """Return whether two answers differ by more than quantization explains, even with a step size set by the batch."""
    if alone.shape != in_batch.shape:  # the shapes differ, not the numbers
        return False
    with np.errstate(all="ignore"):
        difference = np.nan_to_num(np.abs(alone - in_batch), nan=np.inf)
    return bool(difference.max(initial=0.0) > QUANTIZATION * np.nan_to_num(np.abs(in_batch)).max(initial=0.0))


def cut_example(case: Case, number: int) -> Case:
    """Return the case with a batch of just one example, `[1 ...]`."""
    example = slice(number, number + 1)
    inputs = {side: getattr(case.given, side) for side in ("q", "k", "v", "x", "memory")}
    cut = {side: array[example] for side, array in inputs.items() if array is not None}
    masks = tuple(cut_lengths(mask, number) for mask in case.recipe.rules.masks)
    return replace(case.with_masks(masks), given=replace(case.given, **cut))


def cut_lengths(mask: Any, number: int) -> Any:
    """Return the part of a padding mask for one example; a mask without a length per example stays unchanged."""
    lengths = getattr(mask, "lengths", ())
    return type(mask)(int(lengths[number])) if len(lengths) > 1 else mask


def check_memory_layout(caller: Caller, case: Case, digits: int) -> Found:
    question = "odd strides, read-only inputs"
    if caller.library.name == "jax":
        return Finding(question, ABSENT), ""
    usual, arguments = caller(case), caller.arguments(case)
    for role, value in arguments.items():
        if hasattr(value, "shape") and getattr(value, "ndim", 0) >= 2:
            arguments[role] = change_memory_order(value)
    answer = caller.answer(arguments, case)
    if answer.output is None and usual.output is not None:
        return Finding(question, REMARK, answer.error), ""
    is_same = same_answer(answer, usual, case, digits)
    return pass_if(is_same, question, "the answer depends on the memory layout of the inputs")


def change_memory_order(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        reordered = np.asfortranarray(value)
        reordered.setflags(write=False)
        return reordered
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def check_threads(caller: Caller, case: Case, digits: int) -> Found:
    cases = [case, make_other_data(case)] * 4
    alone = [caller(case) for case in cases[:2]] * 4
    # start both threads before the first call, so that nothing the function does to Python can prevent a start
    with ThreadPoolExecutor(2, initializer=Barrier(2, timeout=THREAD_TIMEOUT).wait) as pool:
        together = list(pool.map(caller, cases))
    failure = find_failure([*together, *alone])
    if failure:
        return Finding(IN_THREADS, BROKEN, failure), ""
    are_same = all(same_answer(*compared, digits) for compared in zip(together, alone, cases, strict=True))
    return pass_if(are_same, IN_THREADS, "answers got mixed up")


# State kept between calls: outputs, addresses of inputs, and their values


def check_answer_kept(caller: Caller, case: Case, _digits: int) -> Found:
    question = "an earlier answer is kept"
    try:
        with guard_process():
            returned = caller.call(caller.arguments(case))
            before = caller.read(returned, case).output
            for _ in range(LATER_CALLS):
                caller(make_other_data(case))
            after = caller.read(returned, case).output
    except Exception:
        return Finding(question, ABSENT), ""
    return pass_if(same_numbers(before, after), question, "a later call overwrote it", "reuses_output")


def check_same_address(caller: Caller, case: Case, digits: int) -> Found:
    """Overwrite the inputs in place: a function that caches by address returns its old answer."""
    question, new_case = "fresh data at the same address", make_other_data(case)
    arguments, new_arguments = caller.arguments(case), caller.arguments(new_case)
    copied_arguments = caller.arguments(case)  # the same numbers at another address
    if caller.library.name == "jax":
        return Finding(question, ABSENT, "JAX arrays cannot be written to"), ""
    answer = caller.answer(arguments, case)
    copied_answer = caller.answer(copied_arguments, case)
    if not same_answer(answer, copied_answer, case, digits):
        return Finding(question, BROKEN, CACHED_BY_ADDRESS), ""
    new_answer = caller.answer(new_arguments, new_case)
    if new_answer.output is None:
        return Finding(question, BROKEN, find_failure([new_answer])), ""
    try:
        for role, value in arguments.items():
            if hasattr(value, "shape"):
                value[...] = caller.arguments(new_case)[role]  # the call may have changed `new_arguments`
    except Exception:  # from any library: the function changed their shape, or made them read-only
        return Finding(question, ABSENT, "its inputs can no longer be written to"), ""
    is_fresh = same_answer(caller.answer(arguments, new_case), new_answer, new_case, digits)
    return pass_if(is_fresh, question, CACHED_BY_ADDRESS)


def check_one_input_changed(caller: Caller, case: Case, digits: int) -> Found:
    """Change only the last numbers of one input: a function whose cache ignores them returns its old answer.

    Functions that were already wrong before the change are not tested.
    """
    question = "only one input changed"
    before = caller(case).output
    if before is None or differs(before, expected(case), digits):
        return Finding(question, ABSENT), ""
    for side, changed in change_one_input(case):
        after = caller(changed).output
        if after is None or differs(after, expected(changed), digits):
            return Finding(question, BROKEN, f"{side} changed, but the answer did not"), ""
    return Finding(question, HELD), ""


def change_one_input(case: Case) -> Iterator[tuple[str, Case]]:
    for side in ("q", "k", "v") if case.given.x is None else ("x",):
        array = getattr(case.given, side).copy()
        array[..., -1, -1] = 0.25 - array[..., -1, -1]
        yield side, replace(case, given=replace(case.given, **{side: array}))


def two_masks(case: Case) -> tuple[Array, Array]:
    """Return two different masks.

    Checks that need only one use the first: a function may cache the first mask that it gets.
    """
    query, key = np.indices((setup_of(case).rows, setup_of(case).keys))
    return (query + key) % 3 > 0, (query + key) % 2 > 0


def check_second_mask(caller: Caller, case: Case, digits: int) -> Found:
    """Call a function with two masks in turn: if it caches the first mask, it returns its first answer again."""
    question = "another mask, another answer"
    first_case, second_case = (with_mask(case, allowed) for allowed in two_masks(case))
    first, second = caller(first_case), caller(second_case)
    if first.output is None or second.output is None or setup_of(case).keys < 4:
        return Finding(question, ABSENT, first.error or second.error), ""
    is_reused = same_answer(first, second, case, digits) and not differs(first.output, expected(first_case), digits)
    return pass_if(not is_reused, question, "it reuses the mask of an earlier call", "mask_stale")


# Gradients: autograd compared with numerical differences


def check_gradients(caller: Caller, case: Case, digits: int) -> Found:
    """Compare PyTorch's gradients with central differences along random directions."""
    question = "gradients"
    if caller.library.name != "torch" or digits < DIGITS["float64"]:
        return Finding(question, ABSENT), ""
    try:
        with guard_process(), module_of("torch").random.fork_rng(devices=[]):
            are_right = are_gradients_right(caller, case)
    except Exception as error:
        return Finding(question, REMARK, f"none: {first_line(error)}"[:100]), ""
    if are_right is not None:
        return pass_if(are_right, question, "autograd and numerical gradients differ")
    if WITHOUT_GRADIENTS in find_operations(caller, case):
        return Finding(question, REMARK, "none: the function disables them"), ""
    return Finding(question, BROKEN, "none: its output is detached from its inputs"), "gradients_cut"


def are_gradients_right(caller: Caller, case: Case) -> bool | None:
    """Return whether autograd agrees with numerical differences, or None if no input has a gradient."""
    autograd, arguments = module_of("torch").autograd, caller.arguments(case)
    sides = ("q", "k", "v") if case.given.x is None else ("x",)
    inputs = [arguments[side].clone().requires_grad_() for side in sides]

    def output_of(*changed: Any) -> Any:
        parts = collect_arrays(caller.call(arguments | dict(zip(sides, changed, strict=True))))
        return parts[caller.part] if caller.part in parts else next(iter(parts.values()))

    output = output_of(*inputs)
    found = autograd.grad(output.sum(), inputs, allow_unused=True) if output.requires_grad else ()
    if all(gradient is None for gradient in found):
        return None
    return bool(autograd.gradcheck(
        output_of, inputs, atol=1e-5, rtol=1e-5, nondet_tol=1e-5, fast_mode=True, raise_exception=False,
        check_undefined_grad=False,
    ))  # fmt: skip


# Default dropout, NaN behind a mask, and rows without keys


def check_for_remarks(caller: Caller, case: Case) -> Iterator[Found]:
    yield from check_default_dropout(caller, case)
    if not caller.offer.takes("mask") or case.given.q is None or case.given.v is None:
        yield Finding("NaN behind a mask", ABSENT), ""
        yield Finding("rows without keys", ABSENT), ""
        return
    rows, keys = case.given.q.shape[2], case.given.v.shape[2]
    query, key = np.indices((rows, keys))
    yield check_nan_leak(caller, with_mask(case, key < keys - 1))
    yield check_empty_row(caller, with_mask(case, query != rows // 2), rows // 2)


def check_default_dropout(caller: Caller, case: Case) -> Iterator[Found]:
    if not caller.offer.defaults.get("dropout"):
        return
    arguments = {role: value for role, value in caller.arguments(case).items() if role != "dropout"}
    answers = [caller.answer(arguments, case).output for _ in range(3)]
    if not all(same_numbers(output, answers[0]) for output in answers):
        remark = f"it drops weights unless {caller.offer.parameters['dropout']}=0 is passed, as the check does"
        yield Finding("default dropout", REMARK, remark), "dropout_on"


def with_mask(case: Case, allowed: Array) -> Case:
    return case.with_masks((Allowed(allowed),))


def check_nan_leak(caller: Caller, case: Case) -> Found:
    assert case.given.v is not None
    values = case.given.v.copy()
    values[..., -1, :] = np.nan
    output = caller(replace(case, given=replace(case.given, v=values))).output
    if output is None:
        return Finding("NaN behind a mask", ABSENT), ""
    if np.isnan(output).any():
        known = ", as in this library's own attention" if caller.request.leaks else ""
        return Finding("NaN behind a mask", REMARK, f"it reaches the answer{known}"), "" if known else "nan_leaks"
    return Finding("NaN behind a mask", HELD), ""


def check_empty_row(caller: Caller, case: Case, row: int) -> Found:
    output = caller(case).output
    if output is None:
        return Finding("rows without keys", ABSENT), ""
    found = describe_empty_row(output, case, row)
    if found == "NaN":
        return Finding("rows without keys", REMARK, found), "" if caller.request.empty == "nan" else "empty_row_nan"
    return Finding("rows without keys", HELD, found), ""


def describe_empty_row(output: Array, case: Case, query: int) -> str:
    """Describe the output of a query that sees no key, by the first common choice that fits."""
    row, unmasked = output[..., query, :], case.recipe.with_rules(masks=())
    for phrase, recipe in (
        ("zeros", case.recipe),
        ("the mean of all values", unmasked.with_rules(scale=0.0, scores=())),
        ("the same as without a mask", unmasked),
    ):
        stages = predicted(recipe, case.given)
        right = None if stages is None else stages["output"][..., query, :]
        if right is not None and right.shape == row.shape and np.allclose(row, right, rtol=0, atol=1e-3):
            return phrase
    return "NaN" if np.isnan(row).any() else "other numbers"
