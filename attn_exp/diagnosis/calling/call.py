"""Call a function on a case: convert arrays and layout, use the function's keywords, and read its answer.

`Caller(function, ...)(case)` takes four steps:

1. `arguments` returns the arrays and keywords that the case needs, by role ("q", "mask", ...).
2. `call` passes them to the function under the names of its own parameters.
3. `read_arrays` converts what the function returned to NumPy arrays.
4. `convert_answer` converts these to an `Answer` in the layout of the reference implementation.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from attn_exp.diagnosis.asking.libraries import Library, NoNumbersError, collect_arrays, read_outputs
from attn_exp.diagnosis.asking.names import plain
from attn_exp.diagnosis.asking.offer import (
    MASKINGS,
    PADDINGS,
    Masking,
    Offer,
    for_case,
    from_layout,
    is_joined,
    setup_of,
    to_layout,
)
from attn_exp.diagnosis.asking.questions import Inside
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.sizes import find_kind
from attn_exp.errors import UserError
from attn_exp.own_code import LeftError, error_line, guard_process

ATTRIBUTES_OF_HEADS = (
    "dk", "headdim", "headsize", "dimhead", "dhead", "dimkey", "keydim", "dimk", "depth",
)  # fmt: skip
"""Attributes that contain the size of each head, in lower case and without underscores."""
ATTRIBUTES_OF_WIDTH = (
    "dmodel", "embeddim", "hiddensize", "nembd", "embedsize", "modeldim", "dim", "hiddendim", "embdim", "d",
)  # fmt: skip
"""Attributes that contain the width of all heads together. With one head, this is the head size."""
ATTRIBUTES_DIVIDING, ATTRIBUTES_MULTIPLYING = ("temperature", "temper"), ("scale", "scaling", "scalefactor")
"""Attributes by which scores are divided (usually the square root of the head size) or multiplied (its inverse)."""
LARGEST_HEAD = 256
"""Largest head size considered."""
IS_LAYER = "is_layer"
"""Attribute that marks functions which call a layer; with JAX, they trace the layer themselves."""
MOST_NUMBERS = 2**16
"""Maximum number of elements in an answer, in addition to four times the size of its weights and output."""
RAISE = dis.opmap["RAISE_VARARGS"]
"""The bytecode instruction of `raise` and of a failed `assert`."""


@dataclass(frozen=True)
class Bound:
    """A function or layer that is ready to be called, with a description of its arguments.

    - `call`: takes q, k and v, or x.
    - `origin`: the user's object that `call` calls.
    - `offer`: describes the arguments of `call`.
    - `inside`: the matrices of a layer; None for a function.
    - `unknown`: the optional arguments of a layer that no case sets; None for a function.
    """

    call: Callable[..., Any]
    origin: Any
    offer: Offer
    inside: Inside | None = None
    unknown: tuple[str, ...] | None = None


def read_head_size(layer: Any) -> int:
    """Return the head size of an object from an attribute such as `d_k`, or from its scale; 0 if it is unknown.

    An object with a width but no number of heads counts as one head of that width.
    """
    attributes = {plain(name): value for name, value in (getattr(layer, "__dict__", None) or {}).items()
                  if isinstance(value, int | float) and type(value) is not bool}  # fmt: skip
    sizes = [float(attributes[name]) for name in ATTRIBUTES_OF_HEADS if name in attributes]
    sizes += [float(attributes[name]) ** 2 for name in ATTRIBUTES_DIVIDING if attributes.get(name)]
    sizes += [float(attributes[name]) ** -2 for name in ATTRIBUTES_MULTIPLYING if attributes.get(name)]
    if not any(find_kind(name) == "h" for name in attributes):
        sizes += [float(attributes[name]) for name in ATTRIBUTES_OF_WIDTH if name in attributes]
    known = [round(size) for size in sizes if 1 < size <= LARGEST_HEAD and abs(size - round(size)) < 1e-6 * size]
    return next(iter(known), 0)


def is_object(function: Any) -> bool:
    """Return whether a callable is an object of a user's class, or a method of one, rather than a function."""
    if isinstance(function, partial):
        return is_object(function.func)
    is_function = isroutine(function) and not ismethod(function)
    return not is_function and not hasattr(function, "__wrapped__") and not isclass(function)


@dataclass(frozen=True)
class Caller:
    """A function and how to call it.

    - `offer`: describes its arguments.
    - `library`, `layout`, `dtype`: those of the arrays that it takes.
    - `masking`, `padding`: the formats in which it expects a mask and a padding mask.
    - `returns`: the layout of its output, if it differs from `layout`.
    - `part`: the name of the output among the returned values, if the output is not the first of them.
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
    def is_object(self) -> bool:
        """Whether an object of a user's class is called, or a method of one. It may accept only one head size."""
        known = getattr(self.function, "counts_as_object", None)  # set by the check where it wraps a function
        return is_object(self.function) if known is None else bool(known)

    @property
    def fixed_head_size(self) -> int:
        """The only head size that the object accepts; 0 if it is unknown."""
        owner = getattr(self.function, "__self__", self.function)
        return getattr(self.function, "head_size", 0) or (read_head_size(owner) if self.is_object else 0)

    def __call__(self, case: Case) -> Answer:
        return self.answer(self.arguments(case), case)

    def answer(self, arguments: Mapping[str, Any], case: Case) -> Answer:
        try:
            with guard_process(), np.errstate(all="ignore"):  # errstate is per thread; an overflow shows in the output
                arrays, dtype = self.read_arrays(self.call(arguments), case)
        except (NoNumbersError, LeftError) as error:
            return Answer(None, error=str(error))
        except Exception as error:
            is_refused = self.refuses(error, arguments)
            return Answer(None, error=error_line(error), refused=is_refused, reached=find_position(error))
        return self.convert_answer(arrays, dtype, case)

    def call(self, arguments: Mapping[str, Any]) -> Any:
        if self.request.tell:
            self.request.tell(self.describe_call(arguments))
        positional = [role for role in self.offer.positional if role in arguments]
        values = [arguments[role] for role in positional]
        named = {self.offer.parameters[role]: value for role, value in arguments.items() if role not in positional}
        if self.library.name == "jax" and not self.is_object and not getattr(self.function, IS_LAYER, False):
            return trace_call(self.function, values, named)
        return self.function(*values, **named)

    def describe_call(self, arguments: Mapping[str, Any]) -> str:
        named = {self.offer.parameters[role]: value for role, value in arguments.items() if role != "sizes"}
        described = [f"{name.strip()} {list(value.shape)}" if hasattr(value, "shape") else f"{name.strip()}={value!r}"
                     for name, value in named.items()]  # fmt: skip
        return f"{', '.join(described)}, {self.library.name}, {self.dtype}"

    def refuses(self, error: BaseException, arguments: Mapping[str, Any]) -> bool:
        """Return whether an error means that the function does not support one of the keywords passed to it.

        It does if it is one of these:

        - NotImplementedError or UserError,
        - an error that the function raises itself and that names the keyword,
        - a ValueError or a failed assertion of the function itself, if it succeeds without the optional keywords.
        """
        if isinstance(error, NotImplementedError | UserError):
            return True
        required = {role: value for role, value in arguments.items() if role not in self.offer.defaults}
        requested = [self.offer.parameters[role] for role, value in arguments.items()
                     if role not in (*required, "heads", "kv_heads") and value is not None
                     and not (isinstance(value, bool | float) and value == 0)]  # fmt: skip
        is_own = isinstance(error, ValueError | TypeError | AssertionError | RuntimeError) and is_raised(error)
        if not requested or not is_own:
            return False
        if names_parameter(str(error), requested):
            return True
        with suppress(Exception), guard_process():
            return isinstance(error, ValueError | AssertionError) and bool(collect_arrays(self.call(required)))
        return False

    def arguments(self, case: Case) -> dict[str, Any]:
        """Return the arguments of a case by role: its input arrays, and the keywords that its recipe needs."""
        setup, inputs = setup_of(case), self.input_arrays(case)
        arrays = {role: self.convert(array) for role, array in inputs.items() if self.offer.takes(role)}
        if self.offer.takes("sizes"):
            arrays["sizes"] = (setup, case.recipe.positions)
        keywords = for_case(case, self.offer, self.request, is_joined(self.layout))
        if "mask" in keywords:
            keywords["mask"] = self.masking.write(keywords["mask"], setup, self.request.blocks)
        if "padding" in keywords:
            keywords["padding"] = self.padding.write(keywords["padding"][:, None, None], setup, self.request.blocks)
        keywords = {role: self.convert(value) for role, value in keywords.items()}
        if "mask" in keywords:
            keywords["mask"] = self.masking.wrap(keywords["mask"])
        return arrays | keywords

    def input_arrays(self, case: Case) -> dict[str, Array]:
        given = case.given
        if self.offer.core:
            return {side: to_layout(getattr(given, side), self.layout) for side in "qkv"}
        assert given.x is not None
        example = 0 if self.layout == "td" else slice(None)  # "td" has no batch axis
        memory = {} if given.memory is None else {"memory": given.memory[example]}
        return {"x": given.x[example], **given.arrays, **memory}

    def call_for_arrays(self, case: Case) -> dict[str, Array]:
        """Return all arrays that a call returns, by name; none if it fails."""
        try:
            with guard_process(), np.errstate(all="ignore"):
                return read_outputs(self.call(self.arguments(case)), self.library, MOST_NUMBERS * 4)[0]
        except (Exception, LeftError):
            return {}

    def convert(self, value: Any) -> Any:
        return self.library.into(value, self.dtype) if isinstance(value, np.ndarray) else value

    def read(self, returned: Any, case: Case) -> Answer:
        """Convert a returned value to an answer.

        Raises:
            NoNumbersError: the value is not an array of real numbers.
        """
        return self.convert_answer(*self.read_arrays(returned, case), case)

    def read_arrays(self, returned: Any, case: Case) -> tuple[dict[str, Array], str]:
        """Convert a returned value to NumPy arrays, the output first; also return the output's dtype.

        Raises:
            NoNumbersError: the output is not an array of real numbers.
        """
        setup = setup_of(case)
        limit = MOST_NUMBERS + 4 * setup.batch * setup.heads * setup.rows * (setup.keys + setup.size + setup.width)
        return read_outputs(returned, self.library, limit, self.part)

    def convert_answer(self, arrays: dict[str, Array], dtype: str, case: Case) -> Answer:
        name, *others = arrays
        output, stages, heads = arrays[name], {other: arrays[other] for other in others}, case.recipe.heads
        if self.returns:
            return Answer(from_layout(output, self.returns, heads), stages, dtype)
        output, axes = add_or_drop_axes(output, case, self.layout, self.offer.core)
        if self.offer.core:
            output = from_layout(output, self.layout, heads)
        elif self.layout == "td" and output.ndim == len("tm"):
            output = output[None]
        return Answer(output, stages, dtype, axes=axes)


def add_or_drop_axes(array: Array, case: Case, layout: str, core: bool) -> tuple[Array, str]:
    """Add or remove axes of length 1 to give an answer the expected axes; also return a message if this was needed.

    An answer that has the right number of axes, or that would still not fit, is returned unchanged, without a message.
    """
    axes = layout if core else "tm" if layout == "td" else "btm"
    if array.ndim == len(axes):
        return array, ""
    right = expected(case)["output"]
    shape = to_layout(right, layout).shape if core else right.shape[-len(axes) :]
    if [length for length in array.shape if length != 1] != [length for length in shape if length != 1]:
        return array, ""
    return array.reshape(shape), f"shape {list(array.shape)}, expected {list(shape)}"


# What an error means: whether the function refuses a keyword, and how far the call got


def names_parameter(message: str, parameters: Sequence[str]) -> bool:
    """Return whether an error message contains one of the names as a word, perhaps with spaces for underscores."""
    pattern = "|".join(re.escape(name).replace("_", "[_ ]") for name in parameters)
    return bool(re.search(rf"(?<![^\W_])({pattern})(?![^\W_])", message))


def list_tracebacks(error: BaseException) -> Iterator[TracebackType]:
    entry = error.__traceback__
    while entry is not None:
        yield entry
        entry = entry.tb_next


def is_in_the_check(entry: TracebackType) -> bool:
    return str(entry.tb_frame.f_globals.get("__name__", "")).startswith("attn_exp.diagnosis.")


def find_position(error: BaseException) -> Shape:
    """Return how far a call got before its error: the current instruction in each frame of the user's code."""
    return tuple(entry.tb_lasti for entry in list_tracebacks(error) if not is_in_the_check(entry))


def is_raised(error: BaseException) -> bool:
    """Return whether an explicit `raise` or `assert` caused an error, rather than arrays of wrong shapes."""
    # a compiled function has no frame of its own: the last one is then in the check
    last = next(reversed([*list_tracebacks(error)]), None)
    return last is not None and (is_in_the_check(last) or last.tb_frame.f_code.co_code[last.tb_lasti] == RAISE)
