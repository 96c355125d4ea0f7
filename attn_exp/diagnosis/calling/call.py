"""Call a function on a case: convert arrays and layout, use the function's keywords, and read its answer."""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import isclass, ismethod, isroutine
from types import TracebackType
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.asking.case import Answer, Case, expected
from attn_exp.diagnosis.asking.jaxprs import trace_call
from attn_exp.diagnosis.asking.libraries import Library, NoNumbersError, numbers_of, parts_of
from attn_exp.diagnosis.asking.names import plain
from attn_exp.diagnosis.asking.offer import (
    MASKINGS,
    PADDINGS,
    Masking,
    Offer,
    at_of,
    for_case,
    from_layout,
    is_joined,
    to_layout,
)
from attn_exp.diagnosis.asking.questions import Inside
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.sizes import letter_of
from attn_exp.errors import UserError
from attn_exp.own_code import LeftError, error_line, held


@dataclass(frozen=True)
class Bound:
    """A callable that takes q, k and v or x, and `origin`, the object that it calls.

    `offer` describes its arguments. For a layer, `inside` contains its matrices, `made` is the Python expression that
    built it, and `unknown` lists the optional arguments that no case sets.
    """

    call: Callable[..., Any]
    origin: Any
    offer: Offer
    inside: Inside | None = None
    made: str = ""
    unknown: tuple[str, ...] | None = None


# The call


def size_of_head(made: Any) -> int:
    """Return the head size of an object, read from an attribute such as `d_k` or from its scale; 0 if unknown.

    An object with a width but no number of heads counts as one head of that width.
    """
    said = {plain(word): value for word, value in (getattr(made, "__dict__", None) or {}).items()
            if isinstance(value, int | float) and not isinstance(value, bool)}  # fmt: skip
    sizes = [float(said[word]) for word in OF_HEADS if word in said]
    sizes += [float(said[word]) ** 2 for word in DIVIDING if said.get(word)]
    sizes += [float(said[word]) ** -2 for word in MULTIPLYING if said.get(word)]
    if not any(letter_of(word) == "h" for word in said):
        sizes += [float(said[word]) for word in OF_ONE_HEAD if word in said]
    known = [round(size) for size in sizes if 1 < size <= LARGEST and abs(size - round(size)) < 1e-6 * size]
    return next(iter(known), 0)


OF_HEADS = ("dk", "headdim", "headsize", "dimhead", "dhead", "dimkey", "keydim", "dimk", "depth")
OF_ONE_HEAD = ("dmodel", "embeddim", "hiddensize", "nembd", "embedsize", "modeldim", "dim", "hiddendim", "embdim", "d")
DIVIDING, MULTIPLYING = ("temperature", "temper"), ("scale", "scaling", "scalefactor")
"""Names of attributes by which scores are divided or multiplied."""
LARGEST = 256
"""Largest head size considered."""


def holds_size(function: Any) -> bool:
    """Return whether a callable is an object of a user's class, or a method of one, rather than a function."""
    if isinstance(function, partial):
        return holds_size(function.func)
    is_function = isroutine(function) and not ismethod(function)
    return not is_function and not hasattr(function, "__wrapped__") and not isclass(function)


IS_LAYER = "is_layer"
"""Attribute that marks functions which call a layer; with JAX, they trace the layer themselves."""


@dataclass(frozen=True)
class Caller:
    """A function and how to call it.

    `returns` is the layout of its output, if that differs from `layout`. `part` is the name of the output among the
    returned values, if the output is not the first.
    """

    function: Any
    offer: Offer
    library: Library
    request: Request
    layout: str
    dtype: str = "float64"
    masking: Masking = MASKINGS[0]
    padding: Masking = PADDINGS[0]
    returns: str = ""
    part: str = ""

    @property
    def is_made(self) -> bool:
        """Whether the callable is an object of a user's class or a method of one, and may have a fixed head size."""
        known = getattr(self.function, "holds_size", None)
        return holds_size(self.function) if known is None else bool(known)

    @property
    def size_held(self) -> int:
        known = getattr(self.function, "head_size", 0)
        return known or (size_of_head(getattr(self.function, "__self__", self.function)) if self.is_made else 0)

    def __call__(self, case: Case) -> Answer:
        return self.answer(self.arguments(case), case)

    def answer(self, arguments: Mapping[str, Any], case: Case) -> Answer:
        try:
            with held(), np.errstate(all="ignore"):  # per thread; overflow shows in the output
                arrays, kind = self.numbers(self.call(arguments), case)
        except (NoNumbersError, LeftError) as error:
            return Answer(None, error=str(error))
        except Exception as error:
            return Answer(None, error=error_line(error), refused=self.refuses(error, arguments), reached=reached(error))
        return self.convert_answer(arrays, kind, case)

    def call(self, arguments: Mapping[str, Any]) -> Any:
        if self.request.tell:
            named = {self.offer.parameters[role]: value for role, value in arguments.items() if role != "sizes"}
            said = (f"{name.strip()}{format_argument(value)}" for name, value in named.items())
            self.request.tell(f"{', '.join(said)}, {self.library.name}, {self.dtype}")
        plain, named = self.spoken(arguments)
        if self.library.name == "jax" and not self.is_made and not getattr(self.function, IS_LAYER, False):
            return trace_call(self.function, plain, named)
        return self.function(*plain, **named)

    def spoken(self, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        order = [role for role in self.offer.positional if role in arguments]
        named = {self.offer.parameters[role]: value for role, value in arguments.items() if role not in order}
        return [arguments[role] for role in order], named

    def refuses(self, error: BaseException, arguments: Mapping[str, Any]) -> bool:
        """Return whether an error means that the function does not support one of the keywords passed to it.

        True for NotImplementedError, UserError, a raised error that names the keyword, and a ValueError or failed
        assertion of the function itself that does not occur without the optional keywords.
        """
        needed = {role: value for role, value in arguments.items() if role not in self.offer.defaults}
        words = [
            self.offer.parameters[role]
            for role, value in arguments.items()
            if role not in (*needed, "heads", "kv_heads") and requests_anything(value)
        ]
        if isinstance(error, NotImplementedError | UserError):
            return True
        is_own = isinstance(error, ValueError | TypeError | AssertionError | RuntimeError) and raised(error)
        if not words or not is_own:
            return False
        spoken = "|".join(re.escape(word).replace("_", "[_ ]") for word in words)
        if re.search(rf"(?<![^\W_])({spoken})(?![^\W_])", str(error)):
            return True
        with suppress(Exception), held():
            return isinstance(error, ValueError | AssertionError) and bool(parts_of(self.call(needed)))
        return False

    def arguments(self, case: Case) -> dict[str, Any]:
        given = {}
        if self.offer.core:
            given = {side: to_layout(getattr(case.given, side), self.layout) for side in "qkv"}
        else:
            assert case.given.x is not None
            given = {"x": self.rows(case.given.x), **case.given.arrays}
            if case.given.memory is not None:
                given["memory"] = self.rows(case.given.memory)
        arrays = {role: self.library.into(array, self.dtype) for role, array in given.items() if self.offer.takes(role)}
        if self.offer.takes("sizes"):
            arrays["sizes"] = (at_of(case), case.recipe.positions)
        extra = for_case(case, self.offer, self.request, is_joined(self.layout))
        if "mask" in extra:
            extra["mask"] = self.masking.write(extra["mask"], at_of(case), self.request.blocks)
        if "padding" in extra:
            extra["padding"] = self.padding.write(extra["padding"][:, None, None], at_of(case), self.request.blocks)
        said = {role: self.given(value) for role, value in extra.items()}
        if "mask" in said:
            said["mask"] = self.masking.held(said["mask"])
        return arrays | said

    def rows(self, x: Array) -> Array:
        return x[0] if self.layout == "td" else x

    def returned(self, case: Case) -> dict[str, Array]:
        try:
            with held(), np.errstate(all="ignore"):
                return numbers_of(self.call(self.arguments(case)), self.library, MOST_NUMBERS * 4)[0]
        except (Exception, LeftError):
            return {}

    def given(self, value: Any) -> Any:
        return self.library.into(value, self.dtype) if isinstance(value, np.ndarray) else value

    def read(self, said: Any, case: Case) -> Answer:
        """Convert a returned value to an answer.

        Raises:
            NoNumbersError: the value is not an array of real numbers.
        """
        return self.convert_answer(*self.numbers(said, case), case)

    def numbers(self, said: Any, case: Case) -> tuple[dict[str, Array], str]:
        """Convert a returned value to NumPy arrays, the output first; also return the output's dtype.

        Raises:
            NoNumbersError: the output is not an array of real numbers.
        """
        at = at_of(case)
        most = MOST_NUMBERS + 4 * at.batch * at.heads * at.rows * (at.keys + at.size + at.width)
        return numbers_of(said, self.library, most, self.part)

    def convert_answer(self, arrays: dict[str, Array], kind: str, case: Case) -> Answer:
        output, *others = arrays
        array, stages, heads = arrays[output], {name: arrays[name] for name in others}, {"h": case.recipe.heads}
        if self.returns:
            return Answer(from_layout(array, self.returns, heads), stages, kind)
        array, axes = with_its_axes(array, case, self.layout, self.offer.core)
        if self.offer.core:
            array = from_layout(array, self.layout, heads)
        elif self.layout == "td" and array.ndim == len("tm"):
            array = array[None]
        return Answer(array, stages, kind, axes=axes)


def format_argument(value: Any) -> str:
    return f" {list(value.shape)}" if hasattr(value, "shape") else f"={value!r}"


MOST_NUMBERS = 2**16
"""Maximum number of elements in an answer, on top of four times the size of its weights and output."""


def with_its_axes(array: Array, case: Case, layout: str, core: bool) -> tuple[Array, str]:
    """Add or remove axes of length 1 to give an answer the expected axes; also return a message if this was needed.

    An answer with the right number of axes, or with other lengths, is returned unchanged, without a message.
    """
    if array.ndim == (len(layout) if core else len("tm") if layout == "td" else len("btm")):
        return array, ""
    right = np.broadcast_to(0.0, expected(case)["output"].shape)
    right = to_layout(right, layout) if core else right[0] if layout == "td" else right
    if [length for length in array.shape if length != 1] != [length for length in right.shape if length != 1]:
        return array, ""
    return array.reshape(right.shape), f"shape {list(array.shape)}, expected {list(right.shape)}"


# Whether an error is a refusal: the function states that it does not support a keyword

RAISED = dis.opmap["RAISE_VARARGS"]


def requests_anything(value: Any) -> bool:
    return not (value is None or value is False or (isinstance(value, float) and value == 0.0))


def tracebacks(error: BaseException) -> list[TracebackType]:
    found, last = list[TracebackType](), error.__traceback__
    while last is not None:
        found.append(last)
        last = last.tb_next
    return found


def is_of_the_check(one: TracebackType) -> bool:
    return str(one.tb_frame.f_globals.get("__name__", "")).startswith("attn_exp.diagnosis.")


def reached(error: BaseException) -> Shape:
    """Return how far a call got before its error: the current instruction in each frame outside the check."""
    return tuple(one.tb_lasti for one in tracebacks(error) if not is_of_the_check(one))


def raised(error: BaseException) -> bool:
    """Return whether an explicit `raise` or `assert` caused an error, rather than arrays of wrong shapes."""
    last = next(reversed(tracebacks(error)), None)  # compiled functions are called from here
    return last is not None and (is_of_the_check(last) or last.tb_frame.f_code.co_code[last.tb_lasti] == RAISED)
