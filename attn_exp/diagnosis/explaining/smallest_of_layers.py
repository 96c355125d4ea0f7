"""The smallest input of a layer of PyTorch that still fails, or on which two layers differ, as lines to paste.

The lines make the layer as it was made here and draw its numbers anew, from a seed, so that everybody gets the same
ones. x has few tokens and one number in each; what else the call takes stands as the layer really got it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case, differs, expected
from attn_exp.diagnosis.asking.offer import at_of
from attn_exp.diagnosis.asking.repeat import is_plain_value, numbers
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.explaining.smallest import fits, module_of, reaches, small_case
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.diagnosis.matrices.named_matrices import matrices
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import Smallest
from attn_exp.own_code import OwnFunction

TAKEN = ("torch", "copy", "layer", "first", "second", "parameter")
"""Names in the lines to paste, which no array gets."""
MOST_TOKENS, SEEDS = 4, 3
MOST_NUMBERS, SHOWN = 64, 6
"""Of an array that is written out whole, and of a token's answer."""


@dataclass(frozen=True)
class Place:
    """A layer in the lines to paste: whose class it is, how it is called, what it is called there, and with what
    numbers."""

    own: OwnFunction
    caller: Caller
    function: Bound
    name: str
    filled: tuple[str, ...]


def smallest_of_layer(
    own: OwnFunction, caller: Caller, function: Bound, wrong: Sequence[tuple[Case, Answer]], digits: int
) -> Smallest | None:
    """Return the smallest input on which a layer fails; None where it is not known how everybody can make the same one.

    A layer with norms around its attention has other numbers than its matrices: none is sought for it.
    """
    inside = function.inside
    if inside is None or inside.around is not None or not can_be_written(own, function):
        return None
    if not is_same_reading(matrices_of(function, own.name), inside.arrays):
        return None
    place = Place(own, caller, function, "layer", drawn_in("layer"))
    with drawn_anew(function.origin):
        arrays = matrices_of(function, own.name)
        if arrays is None:
            return None
        for small in small_cases(wrong[0][0], caller, arrays):
            answer, lines = written_call(place, small)
            right = expected(small)
            if answer.output is None or not lines or answer.output.shape != right["output"].shape:
                continue
            if differs(answer.output, right, min(digits, 20)):
                row = first_row(answer.output, right["output"])
                return Smallest(lines, "", of_row(answer.output, row), of_row(right["output"], row))
    return None


def smallest_of_two_layers(
    places: Sequence[tuple[OwnFunction, Caller, Bound]], case: Case
) -> tuple[Smallest, Smallest] | None:
    """Return the smallest input on which two layers differ, as lines to paste for either; None where their parameters
    have other names or shapes."""
    if not all(can_be_written(own, function) for own, _, function in places):
        return None
    shapes = [{name: value.shape for name, value in function.origin.state_dict().items()} for _, _, function in places]
    if shapes[0] != shapes[1]:
        return None
    copied = ("second.load_state_dict(first.state_dict())",)
    first, second = (
        Place(own, caller, function, name, drawn_in(name) if name == "first" else copied)
        for (own, caller, function), name in zip(places, ("first", "second"), strict=True)
    )
    one, other = first.function.origin, second.function.origin
    with drawn_anew(one), drawn_anew(other):
        other.load_state_dict(one.state_dict())
        for small in small_cases(case, first.caller, case.given.arrays):
            made = [written_call(place, small) for place in (first, second)]
            answers = [answer.output for answer, _ in made]
            if any(output is None for output in answers) or not all(lines for _, lines in made):
                continue
            mine, theirs = answers
            assert mine is not None and theirs is not None
            if mine.shape == theirs.shape and not np.allclose(mine, theirs, rtol=1e-5, atol=1e-6, equal_nan=True):
                row = first_row(mine, theirs)
                a, b = (Smallest(lines, "", of_row(output, row), "")
                        for (_, lines), output in zip(made, (mine, theirs), strict=True))  # fmt: skip
                return a, b
    return None


def can_be_written(own: OwnFunction, function: Bound) -> bool:
    """Say whether lines to paste can make a layer: of its class with plain words, or out of one that is made."""
    if inspect.isclass(own.function):
        return bool(function.written) and "<locals>" not in own.function.__qualname__
    return hasattr(own.function, "load_state_dict")


@contextmanager
def drawn_anew(module: Any) -> Iterator[None]:
    """Give a module the numbers that the lines to paste give it, and then its own again."""
    import torch  # noqa: PLC0415 - it is a module of PyTorch

    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    try:
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter)
        yield
    finally:
        torch.random.set_rng_state(state)
        module.load_state_dict(before)


def drawn_in(name: str) -> tuple[str, ...]:
    """Return the lines that give a layer the numbers of `drawn_anew`."""
    return ("torch.manual_seed(0)", f"for parameter in {name}.parameters():", "    torch.nn.init.normal_(parameter)")


def matrices_of(function: Bound, name: str) -> Mapping[str, Array] | None:
    """Return the matrices that a layer has now, read where they were found."""
    try:
        if function.layer is None or function.roles is None:
            return matrices(function.origin, name)
        return function.roles.arrays({part: np.array(one) for part, one in function.layer.parameters.items()})
    except (UserError, ValueError, KeyError):
        return None


def is_same_reading(arrays: Mapping[str, Array] | None, known: Mapping[str, Array]) -> bool:
    """Say whether matrices are those that are known of a layer: these may be read by its names."""
    if arrays is None or arrays.keys() != known.keys():
        return False
    return all(np.array_equal(array, known[name]) for name, array in arrays.items())


def small_cases(case: Case, caller: Caller, arrays: Mapping[str, Array]) -> Iterator[Case]:
    """Yield the question with few tokens and few numbers, the fewest first."""
    at, given = at_of(case), case.given
    if given.x is None or given.around is not None or given.past:
        return
    for rows in range(1, MOST_TOKENS + 1):
        if not all(reaches(mask, rows, rows) for mask in case.recipe.rules.masks):
            continue
        for seed in range(SEEDS):
            small = small_case(case, (at.heads, at.groups, rows, rows, at.size), caller.request, seed)
            x = sparse((1, rows, given.x.shape[-1]), seed)
            memory = None if given.memory is None else sparse((1, rows, given.memory.shape[-1]), seed + SEEDS)
            small = replace(small, given=replace(given, x=x, memory=memory, arrays=arrays))
            if fits(small):
                yield small


def sparse(shape: tuple[int, int, int], seed: int) -> Array:
    """Return an x in which each token has one number, in another place."""
    x = np.zeros(shape)
    for token in range(shape[1]):
        x[0, token, (token + seed * shape[1]) % shape[2]] = 1 + (token + seed) % 3
    return x


# The lines


def written_call(place: Place, case: Case) -> tuple[Answer, str]:
    """Return what a layer answers, and the lines that call it so; no lines where it is not one plain call."""
    module, calls = place.function.origin, list[tuple[tuple[Any, ...], dict[str, Any]]]()

    def note(_: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls.append((positional, dict(named)))

    hook = module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        answer = place.caller(case)
    finally:
        hook.remove()
    if len(calls) != 1:
        return answer, ""
    made = lines_of_call(module.forward, *calls[0])
    if made is None:
        return answer, ""
    arrays, words = made
    name, own = place.name, place.own
    kind = "" if place.caller.dtype == "float32" else ".double()"
    before = [f"from {module_of(own)} import {own.name.split('.')[0]}", "import torch"]
    made_of = f"{own.name}{place.function.written}"
    if not inspect.isclass(own.function):
        before, made_of = ["import copy", *before], f"copy.deepcopy({own.name})"
    start = f"{name} = {made_of}{kind}.eval()"
    return answer, "\n".join([*before, start, *place.filled, *arrays, f"{name}({', '.join(words)})"])


def lines_of_call(
    forward: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[str], list[str]] | None:
    """Return the lines that make the arrays of a call, and its arguments; None where one of them cannot be written."""
    names = [*list(inspect.signature(forward).parameters)[: len(positional)], *named]
    names += [f"x{place}" for place in range(len(positional) + len(named) - len(names))]  # of what takes any number
    known, lines, words = list[tuple[str, Any]](), list[str](), list[str]()
    for place, (word, value) in enumerate(zip(names, (*positional, *named.values()), strict=True)):
        before, name = "" if place < len(positional) else f"{word}=", f"{word}_" if word in TAKEN else word
        if hasattr(value, "detach"):
            same = next((other for other, one in known if is_same(one, value)), "")
            if not same:
                made = array_lines(name, value)
                if made is None:
                    return None
                known.append((name, value))
                lines += made
            words.append(before + (same or name))
        elif is_plain_value(value):
            words.append(f"{before}{value!r}")
        else:
            return None
    return lines, words


def is_same(one: Any, other: Any) -> bool:
    """Say whether two tensors hold the same."""
    return one.shape == other.shape and one.dtype == other.dtype and bool((one == other).all())


def array_lines(name: str, tensor: Any) -> list[str] | None:
    """Return the lines that make a tensor: its few numbers that are no zeros, or all of them; None of too many."""
    array = tensor.detach().cpu().numpy()
    kind = f", dtype={tensor.dtype}" if array.dtype.kind == "f" else ""
    filled = np.argwhere(array)
    if array.dtype.kind == "f" and 0 < len(filled) <= MOST_TOKENS and array.size > 2 * len(filled):
        places = ", ".join(f"{name}[{', '.join(map(str, place))}]" for place in filled)
        values = ", ".join(f"{array[tuple(place)]:g}" for place in filled)
        return [f"{name} = torch.zeros({', '.join(map(str, array.shape))}{kind})", f"{places} = {values}"]
    if array.size > MOST_NUMBERS or (array.dtype.kind == "f" and not np.isfinite(array).all()):
        return None
    return [f"{name} = torch.tensor({numbers(array)}{kind})"]


def first_row(one: Array, other: Array) -> int:
    """Return the first token whose answers differ."""
    with np.errstate(all="ignore"):
        gaps = np.abs(np.nan_to_num(one, nan=1e9) - np.nan_to_num(other, nan=1e9)).max(axis=-1)[0]
    return int(np.argmax(gaps > 1e-6 * max(float(gaps.max()), 1e-30)))


def of_row(output: Array, row: int) -> str:
    """Return the first numbers of what a token gets."""
    numbers = [f"{number + 0.0:.4g}" for number in output[0, row, :SHOWN]]
    more = ", ..." if output.shape[-1] > SHOWN else ""
    return f"[{', '.join(numbers)}{more}]" + (f" for token {row}" if output.shape[1] > 1 else "")
