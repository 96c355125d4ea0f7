"""Check behaviour that one call cannot show: determinism, unchanged inputs, independent examples, thread safety.

Other checks look for state kept between calls, for wrong gradients, and at what fully masked rows contain.
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
    other_data,
    same_answer,
    same_numbers,
)
from attn_exp.diagnosis.asking.libraries import DIGITS, module_of, parts_of
from attn_exp.diagnosis.asking.offer import at_of
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.errors import first_line
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, REMARK, Finding
from attn_exp.own_code import held
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.padding import Padding

Found = tuple[Finding, str]
"""A finding, and the name of its mistake."""


def behaviours(caller: Caller, case: Case, digits: int) -> Iterator[Found]:
    checks = (
        check_determinism, check_inputs_unchanged, check_answer_kept, check_same_address, check_one_input_changed,
        check_batch_independence, check_memory_layout, check_threads,
        *([check_second_mask] if caller.offer.takes("mask") else []),
    )  # fmt: skip
    yield from (one(caller, case, digits) for one in checks)


def check_determinism(caller: Caller, case: Case, digits: int) -> Found:
    rung = TWICE
    answers = [caller(case) for _ in range(3)]
    if find_failure(answers):
        return Finding(rung, BROKEN, find_failure(answers)), ""
    if all(same_numbers(answers[0].output, other.output) for other in answers[1:]):
        return Finding(rung, HELD), ""
    if all(same_answer(answers[0], other, case, digits) for other in answers[1:]):
        return Finding(rung, BROKEN, "the last digits differ from call to call"), "not_deterministic"
    name = "dropout_on" if operations_of(caller, case) & DROPOUT else "not_deterministic"
    return Finding(rung, BROKEN, "the same call gave different answers"), name


TWICE = "the same answer twice"
DROPOUT = {"bernoulli", "native_dropout"}
"""PyTorch operations that drop numbers at random."""


def find_failure(answers: Iterable[Answer]) -> str:
    return next((f"one call gave no answer: {answer.error}" for answer in answers if answer.output is None), "")


WITHOUT_GRADIENTS = "no_grad"


def operations_of(caller: Caller, case: Case) -> set[str]:
    """Return the names of the PyTorch operations in a call, plus `WITHOUT_GRADIENTS` if any ran without gradients."""
    if caller.library.name != "torch":
        return set()
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415 - the function has imported torch

    names = set[str]()

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.add(function.__name__.partition(".")[0].rstrip("_"))
            if not module_of("torch").is_grad_enabled():
                names.add(WITHOUT_GRADIENTS)
            return function(*args, **(kwargs or {}))

    with Watching():
        caller(case)
    return names


def check_inputs_unchanged(caller: Caller, case: Case, _digits: int) -> Found:
    """Check that a call leaves its arrays and masks unchanged, even if it fails."""
    rung, keys, changed, answers = "inputs unchanged", at_of(case).keys, list[str](), list[Answer]()
    rules = {"mask": Allowed(two_masks(case)[0]), "padding": Padding(keys - 1)}
    masks = [(rule,) for role, rule in rules.items() if caller.offer.takes(role) and keys >= len("qk")]
    for more in ((), *masks):
        asked = replace(case, recipe=case.recipe.with_rules(masks=(*case.recipe.rules.masks, *more)))
        arguments = caller.arguments(asked)
        before = copy_arrays(caller, arguments)
        answers.append(caller.answer(arguments, asked))
        changed += [
            role for role, array in copy_arrays(caller, arguments).items() if not same_numbers(array, before[role])
        ]
    if changed:
        return Finding(rung, BROKEN, f"it changed {', '.join(dict.fromkeys(changed))}"), "changes_inputs"
    said = find_failure(answers[:1])
    return Finding(rung, BROKEN if said else HELD, said), ""


def copy_arrays(caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Array]:
    return {role: np.array(caller.library.back(value)) for role, value in arguments.items() if hasattr(value, "shape")}


def check_batch_independence(caller: Caller, case: Case, digits: int) -> Found:
    rung = "examples independent"
    answer = caller(case)
    whole = answer.output
    if whole is None or len(whole) < 2 or whole.shape != expected(case)["output"].shape:
        return Finding(rung, ABSENT), ""
    for entry in range(len(whole)):
        alone_case = cut_entry(case, entry)
        alone = caller(alone_case)
        if alone.output is None:
            return Finding(rung, ABSENT, alone.error), ""
        if bool(alone.axes) != bool(answer.axes):
            return Finding(rung, BROKEN, f"example {entry + 1} alone gives other axes: {alone.axes or answer.axes}"), ""
        if not same_answer(alone, Answer(whole[entry : entry + 1]), alone_case, digits):
            said = f"example {entry + 1} gives a different answer alone than in its batch"
            return Finding(rung, BROKEN, said), "batch_mixed" if is_apart(
                alone.output, whole[entry : entry + 1]
            ) else ""
    return Finding(rung, HELD), ""


def is_apart(one: Array, other: Array) -> bool:
    """Return whether two answers differ by more than quantization with one step size per batch can explain."""
    if one.shape != other.shape:  # the shapes differ, not the numbers
        return False
    with np.errstate(all="ignore"):
        gap = np.nan_to_num(np.abs(one - other), nan=np.inf)
    return bool(gap.max(initial=0.0) > A_STEP * np.nan_to_num(np.abs(other)).max(initial=0.0))


A_STEP = 0.05
"""Largest difference that quantization may cause, relative to the largest number of the answer."""


def cut_entry(case: Case, entry: int) -> Case:
    given = case.given
    one = slice(entry, entry + 1)
    cut = {name: array[one] for name in ("q", "k", "v", "x", "memory") if (array := getattr(given, name)) is not None}
    masks: list[Any] = list(case.recipe.rules.masks)
    for place, mask in enumerate(masks):
        lengths = getattr(mask, "lengths", ())
        if len(lengths) > 1:  # each example has its own length
            masks[place] = type(mask)(int(lengths[entry]))
    return replace(case, given=replace(given, **cut), recipe=case.recipe.with_rules(masks=tuple(masks)))


def check_memory_layout(caller: Caller, case: Case, digits: int) -> Found:
    rung = "odd strides, read-only inputs"
    if caller.library.name == "jax":
        return Finding(rung, ABSENT), ""
    plain, arguments = caller(case), caller.arguments(case)
    for role, value in arguments.items():
        if hasattr(value, "shape") and getattr(value, "ndim", 0) >= 2:
            arguments[role] = change_memory_order(value)
    answer = caller.answer(arguments, case)
    if answer.output is None and plain.output is not None:
        return Finding(rung, REMARK, answer.error), ""
    if not same_answer(answer, plain, case, digits):
        return Finding(rung, BROKEN, "the answer depends on the memory layout of the inputs"), ""
    return Finding(rung, HELD), ""


def change_memory_order(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        turned = np.asfortranarray(value)
        turned.setflags(write=False)
        return turned
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def check_threads(caller: Caller, case: Case, digits: int) -> Found:
    rung = IN_THREADS
    cases = [case, other_data(case)] * 4
    alone = [caller(question) for question in cases[:2]] * 4
    # start both threads before the first call, so that nothing the function does to Python can prevent a start
    with ThreadPoolExecutor(2, initializer=Barrier(2, timeout=BOTH).wait) as pool:
        together = list(pool.map(caller, cases))
    if find_failure([*together, *alone]):
        return Finding(rung, BROKEN, find_failure([*together, *alone])), ""
    for answer, one, asked in zip(together, alone, cases, strict=True):
        if not same_answer(answer, one, asked, digits):
            return Finding(rung, BROKEN, "answers got mixed up"), ""
    return Finding(rung, HELD), ""


IN_THREADS = "two threads at once"
BOTH = 20.0
"""Seconds to wait for the second thread to start."""


# State kept between calls: outputs, addresses of inputs, and their values

LATER = 4
"""Number of later calls that must not overwrite an earlier answer; some functions use several buffers in turn."""


def check_answer_kept(caller: Caller, case: Case, _digits: int) -> Found:
    try:
        with held():
            said = caller.call(caller.arguments(case))
            before = caller.read(said, case).output
            for _ in range(LATER):
                caller(other_data(case))
            after = caller.read(said, case).output
    except Exception:
        return Finding("an earlier answer is kept", ABSENT), ""
    if not same_numbers(before, after):
        return Finding("an earlier answer is kept", BROKEN, "a later call overwrote it"), "reuses_output"
    return Finding("an earlier answer is kept", HELD), ""


def check_same_address(caller: Caller, case: Case, digits: int) -> Found:
    """Overwrite the inputs in place: a function that caches by address returns its old answer."""
    rung = "fresh data at the same address"
    new = other_data(case)
    arguments, fresh = caller.arguments(case), caller.arguments(new)
    if caller.library.name == "jax":
        return Finding(rung, ABSENT, "JAX arrays cannot be written to"), ""
    once, again = (caller.answer(one, case) for one in (arguments, caller.arguments(case)))  # at another address
    if not same_answer(once, again, case, digits):
        return Finding(rung, BROKEN, OF_OLD), ""
    apart = caller.answer(fresh, new)
    if apart.output is None:
        return Finding(rung, BROKEN, find_failure([apart])), ""
    try:
        for role, value in arguments.items():
            if hasattr(value, "shape"):
                value[...] = caller.arguments(new)[role]
    except Exception:  # from any library: the function changed their shape, or made them read-only
        return Finding(rung, ABSENT, "its inputs can no longer be written to"), ""
    if same_answer(caller.answer(arguments, new), apart, new, digits):
        return Finding(rung, HELD), ""
    return Finding(rung, BROKEN, OF_OLD), ""


OF_OLD = "it caches by the address of its inputs, and returns an old answer"


def check_one_input_changed(caller: Caller, case: Case, digits: int) -> Found:
    """Change only the last numbers of one input: a function whose cache ignores them returns its old answer.

    Functions that were already wrong before the change are not tested.
    """
    rung = "only one input changed"
    before = caller(case).output
    if before is None or differs(before, expected(case), digits):
        return Finding(rung, ABSENT), ""
    for side, changed in change_one_input(case):
        after = caller(changed).output
        if after is None or differs(after, expected(changed), digits):
            return Finding(rung, BROKEN, f"{side} changed, but the answer did not"), ""
    return Finding(rung, HELD), ""


def change_one_input(case: Case) -> Iterator[tuple[str, Case]]:
    for side in ("q", "k", "v") if case.given.x is None else ("x",):
        array = getattr(case.given, side).copy()
        array[..., -1, -1] = 0.25 - array[..., -1, -1]
        yield side, replace(case, given=replace(case.given, **{side: array}))


def two_masks(case: Case) -> tuple[Array, Array]:
    """Return two masks; code that needs only one uses the first, because some functions cache their first mask."""
    places = np.arange(at_of(case).rows)[:, None] + np.arange(at_of(case).keys)
    return places % 3 > 0, places % 2 > 0


def check_second_mask(caller: Caller, case: Case, digits: int) -> Found:
    """Call a function with two masks in turn: if it caches the first mask, it returns its first answer again."""
    rung, at, masks = "another mask, another answer", at_of(case), two_masks(case)
    first, second = (caller(masked(case, seen)) for seen in masks)
    if first.output is None or second.output is None or at.keys < 4:
        return Finding(rung, ABSENT, first.error or second.error), ""
    if same_answer(first, second, case, digits) and not differs(first.output, expected(masked(case, masks[0])), digits):
        return Finding(rung, BROKEN, "it reuses the mask of an earlier call"), "mask_stale"
    return Finding(rung, HELD), ""


# Gradients: autograd compared with numerical differences


def gradients(caller: Caller, case: Case, digits: int) -> Found:
    """Compare PyTorch's gradients with central differences along random directions."""
    rung = "gradients"
    if caller.library.name != "torch" or digits < DIGITS["float64"]:
        return Finding(rung, ABSENT), ""
    torch = module_of("torch")
    sides = ("q", "k", "v") if case.given.x is None else ("x",)
    arguments = caller.arguments(case)
    leaves = [arguments[side].clone().requires_grad_() for side in sides]

    def output(*moved: Any) -> Any:
        parts = parts_of(caller.call(arguments | dict(zip(sides, moved, strict=True))))
        return parts[caller.part] if caller.part in parts else next(iter(parts.values()))

    try:
        with held(), torch.random.fork_rng(devices=[]):
            produced = output(*leaves)
            slopes = torch.autograd.grad(produced.sum(), leaves, allow_unused=True) if produced.requires_grad else ()
            if any(slope is not None for slope in slopes):
                are_right = torch.autograd.gradcheck(
                    output,
                    leaves,
                    atol=1e-5,
                    rtol=1e-5,
                    nondet_tol=1e-5,
                    fast_mode=True,
                    raise_exception=False,
                    check_undefined_grad=False,
                )
                said = "" if are_right else "autograd and numerical gradients differ"
                return Finding(rung, HELD if are_right else BROKEN, said), ""
    except Exception as error:
        return Finding(rung, REMARK, f"none: {first_line(error)}"[:100]), ""
    if WITHOUT_GRADIENTS in operations_of(caller, case):
        return Finding(rung, REMARK, "none: the function disables them"), ""
    return Finding(rung, BROKEN, "none: its output is detached from its inputs"), "gradients_cut"


# NaN behind a mask, and rows without keys


def remarks(caller: Caller, case: Case) -> Iterator[Found]:
    yield from check_default_dropout(caller, case)
    if not caller.offer.takes("mask") or case.given.q is None or case.given.v is None:
        yield Finding("NaN behind a mask", ABSENT), ""
        yield Finding("rows without keys", ABSENT), ""
        return
    rows, keys = case.given.q.shape[2], case.given.v.shape[2]
    seen = np.ones((rows, keys), np.bool_)
    seen[:, -1] = False
    yield check_nan_leak(caller, masked(case, seen))
    seen = np.ones((rows, keys), np.bool_)
    seen[rows // 2] = False
    yield check_empty_row(caller, masked(case, seen), rows // 2)


def check_default_dropout(caller: Caller, case: Case) -> Iterator[Found]:
    if not caller.offer.defaults.get("dropout"):
        return
    arguments = caller.arguments(case)
    arguments.pop("dropout", None)
    answers = [caller.answer(arguments, case).output for _ in range(3)]
    if not all(same_numbers(output, answers[0]) for output in answers):
        word = caller.offer.parameters["dropout"]
        said = f"it drops weights unless {word}=0 is passed, as the check does"
        yield Finding("default dropout", REMARK, said), "dropout_on"


def masked(case: Case, seen: np.ndarray) -> Case:
    return replace(case, recipe=case.recipe.with_rules(masks=(Allowed(seen),)))


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
    kind = classify_empty_row(output[..., row, :], case)
    if kind == "nan":
        return Finding("rows without keys", REMARK, "NaN"), "" if caller.request.empty == "nan" else "empty_row_nan"
    return Finding("rows without keys", HELD, kind), ""


def classify_empty_row(row: np.ndarray, case: Case) -> str:
    assert case.given.v is not None
    if np.isnan(row).any():
        return "nan"
    mean = np.repeat(case.given.v.mean(axis=2), case.recipe.heads // case.recipe.groups, axis=1)
    return (
        "zeros" if not row.any() else "the mean of all values" if np.allclose(row, mean, atol=1e-3) else "other numbers"
    )
