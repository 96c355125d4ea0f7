"""Calls a function with a case: arrays of its library and layout, keywords by its own names, and its answer back."""

from __future__ import annotations

import dis
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import isclass, ismethod, isroutine
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case, expected
from attn_exp.diagnosis.asking.layouts import is_joined, laid, unlaid
from attn_exp.diagnosis.asking.masking import MASKINGS, PADDINGS, Masking
from attn_exp.diagnosis.asking.offer import Offer, at_of, boolean, for_case, plain
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.sizes import letter_of
from attn_exp.diagnosis.code.libraries import Library
from attn_exp.diagnosis.code.returned import NoNumbersError, numbers_of, parts_of
from attn_exp.diagnosis.code.traced import called
from attn_exp.errors import UserError, words_of_error
from attn_exp.own_code import LeftError, error_line, held

# The call


def size_of_head(made: Any) -> int:
    """Return for heads of which size an object was made, by what it calls `d_k`, or by its scale; 0 if nothing says.

    One that holds a width and counts no heads has one head of that width.
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
"""What people call the number that scores are divided by, or multiplied by."""
LARGEST = 256
"""Numbers of a head."""


def holds_size(function: Any) -> bool:
    """Say whether something is an object of somebody's class, or a method of one, and no plain or compiled function."""
    if isinstance(function, partial):
        return holds_size(function.func)
    is_function = isroutine(function) and not ismethod(function)
    return not is_function and not hasattr(function, "__wrapped__") and not isclass(function)


IS_LAYER = "is_layer"
"""What marks functions that call a layer, whose calls of JAX are traced where the layer is called."""


@dataclass(frozen=True)
class Caller:
    """A function and how to call it.

    `returns` is the layout of its answer, where that is another, and `part` the name of its output among what it
    returns, where that is not the first.
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
        """Whether it is an object of somebody's class, or a method of one, which may hold the size of a head."""
        known = getattr(self.function, "holds_size", None)
        return holds_size(self.function) if known is None else bool(known)

    @property
    def size_held(self) -> int:
        """The size of a head for which an object was made, as its own numbers say it; 0 where they do not, or none."""
        known: int = getattr(self.function, "head_size", 0)
        return known or (size_of_head(getattr(self.function, "__self__", self.function)) if self.is_made else 0)

    def __call__(self, case: Case) -> Answer:
        """Return what the function says to a case; one that wants a mask beside its word for causal gets both."""
        arguments = self.arguments(case)
        answer = self.answer(arguments, case)
        if answer.error and "causal" in arguments and self.offer.takes("mask") and "mask" not in arguments:
            whole = boolean(list(case.recipe.rules.masks), at_of(case), self.request)
            whole = self.masking.write(whole, at_of(case), self.request.blocks)
            return self.answer(arguments | {"mask": self.masking.held(self.given(whole))}, case)
        return answer

    def answer(self, arguments: Mapping[str, Any], case: Case) -> Answer:
        """Return what the function says to arguments by role; an error is an answer too."""
        try:
            with held(), np.errstate(all="ignore"):  # each thread has its own; what overflows is seen in the answer
                arrays, kind = self.numbers(self.call(arguments), case)
        except (NoNumbersError, LeftError) as error:
            return Answer(None, error=str(error))
        except Exception as error:
            return Answer(None, error=error_line(error), refused=self.refuses(error, arguments), reached=reached(error))
        return self.laid_as_asked(arrays, kind, case)

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the function with arguments by role, and return what it returns: every call is made here."""
        if self.request.tell:
            said = (f"{self.offer.parameters[role].strip()}{worded(value)}" for role, value in arguments.items()
                    if role != "sizes")  # fmt: skip
            self.request.tell(f"{', '.join(said)}, {self.library.name}, {self.dtype}")
        plain, named = self.spoken(arguments)
        if self.library.name == "jax" and not self.is_made and not getattr(self.function, IS_LAYER, False):
            return called(self.function, plain, named)
        return self.function(*plain, **named)

    def spoken(self, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments by role in the function's own words: those that have no name in their order, and others."""
        order = [role for role in self.offer.parameters if role in self.offer.positional and role in arguments]
        named = {self.offer.parameters[role]: value for role, value in arguments.items() if role not in order}
        return [arguments[role] for role in order], named

    def refuses(self, error: BaseException, arguments: Mapping[str, Any]) -> bool:
        """Say whether an error means that the function does not offer one of the keywords that it was given.

        It does where it says so (NotImplementedError), where it raises an error that names the keyword, or where it
        raises a ValueError of its own, or asserts something, that does not come without the keywords that it can do
        without.
        """
        needed = {role for role in arguments if role in self.offer.parameters and role not in self.offer.defaults}
        said = {role: value for role, value in arguments.items() if role not in needed}
        plain = {role: value for role, value in arguments.items() if role in needed}
        if isinstance(error, NotImplementedError | UserError):
            return True
        words = [self.offer.parameters[role] for role, value in said.items() if role not in PLAIN and asks(value)]
        known = isinstance(error, ValueError | TypeError | AssertionError | RuntimeError)
        if not words or not known or not raised(error):
            return False
        spoken = [re.escape(word).replace("_", "[_ ]") for word in words]
        if any(re.search(rf"(?<![^\W_]){word}(?![^\W_])", words_of_error(error)) for word in spoken):
            return True
        if not isinstance(error, ValueError | AssertionError):
            return False
        try:
            with held():
                return bool(parts_of(self.call(plain)))
        except Exception:
            return False

    def arguments(self, case: Case) -> dict[str, Any]:
        """Return the arguments of a case, by role."""
        given: dict[str, Array] = {}
        if self.offer.core:
            given = {side: laid(getattr(case.given, side), self.layout) for side in "qkv"}
        else:
            assert case.given.x is not None
            given = {"x": laid_rows(case.given.x, self.layout), **case.given.arrays}
            if case.given.memory is not None:
                given["memory"] = laid_rows(case.given.memory, self.layout)
        arrays = {role: self.library.into(array, self.dtype) for role, array in given.items() if self.offer.takes(role)}
        if self.offer.takes("sizes"):
            arrays["sizes"] = (at_of(case), self.library.name, case.recipe.positions)
        extra = for_case(case, self.offer, self.request, is_joined(self.layout))
        if "mask" in extra:
            extra["mask"] = self.masking.write(extra["mask"], at_of(case), self.request.blocks)
        if "padding" in extra:
            extra["padding"] = self.padding.write(extra["padding"][:, None, None], at_of(case), self.request.blocks)
        if "query_padding" in extra:
            neutral = "turned" if self.padding.neutral == "turned" else "mask"
            at, kind = at_of(case), replace(self.padding, neutral=neutral)
            mask = extra["query_padding"][:, None, None]
            extra["query_padding"] = kind.write(mask, replace(at, keys=at.rows), self.request.blocks)
        said = {role: self.given(value) for role, value in extra.items()}
        if "mask" in said:
            said["mask"] = self.masking.held(said["mask"])
        return arrays | said

    def returned(self, case: Case) -> dict[str, Array]:
        """Return the arrays that a function returns, by name, in their own axes; none where it raises an error."""
        try:
            with held(), np.errstate(all="ignore"):
                return numbers_of(self.call(self.arguments(case)), self.library, MOST_NUMBERS * 4)[0]
        except (Exception, LeftError):
            return {}

    def given(self, value: Any) -> Any:
        """Return a keyword's value; arrays go into the library."""
        return self.library.into(value, self.dtype) if isinstance(value, np.ndarray) else value

    def read(self, said: Any, case: Case) -> Answer:
        """Return what was returned as an answer.

        Raises:
            NoNumbersError: it is no array of real numbers.
        """
        return self.laid_as_asked(*self.numbers(said, case), case)

    def numbers(self, said: Any, case: Case) -> tuple[dict[str, Array], str]:
        """Return what was returned as arrays of our own, the output first, and the type that this had.

        Raises:
            NoNumbersError: it is no array of real numbers.
        """
        at = at_of(case)
        most = MOST_NUMBERS + 4 * at.batch * at.heads * at.rows * (at.keys + at.size + at.width)
        return numbers_of(said, self.library, most, self.part)

    def laid_as_asked(self, arrays: dict[str, Array], kind: str, case: Case) -> Answer:
        """Return arrays of which the first is the output as an answer, with the axes of the question."""
        output, *others = arrays
        array, stages, heads = arrays[output], {name: arrays[name] for name in others}, {"h": case.recipe.heads}
        if self.returns:
            return Answer(unlaid(array, self.returns, heads), stages, kind)
        array, axes = with_its_axes(array, case, self.layout, self.offer.core)
        array = unlaid(array, self.layout, heads) if self.offer.core else unlaid_layer(array, self.layout)
        return Answer(array, stages, kind, axes=axes)


def worded(value: Any) -> str:
    """Return what an argument is, after its name: the shape of an array, or the value."""
    return f" {list(value.shape)}" if hasattr(value, "shape") else f"={value!r}"


MOST_NUMBERS = 2**16
"""Of an answer, beside four times those of its weights and of its output."""


TOKENS_FIRST = "tbm"
"""The layout of x where tokens lie before entries."""


def with_its_axes(array: Array, case: Case, layout: str, core: bool) -> tuple[Array, str]:
    """Return an answer without axes of length 1 that it has too many, or with those that it lacks, and what is wrong.

    An answer of as many axes as it should have, or of other lengths, is returned as it is, and nothing is said.
    """
    if array.ndim == (len(layout) if core else len("tm") if layout == "td" else len("btm")):
        return array, ""
    right: Array = np.broadcast_to(0.0, expected(case)["output"].shape)
    right = laid(right, layout) if core else right[0] if layout == "td" else right
    if [length for length in array.shape if length != 1] != [length for length in right.shape if length != 1]:
        return array, ""
    return array.reshape(right.shape), f"shape {list(array.shape)}, expected {list(right.shape)}"


def laid_rows(rows: Array, layout: str) -> Array:
    """Return what a layer is given `[b t m]` with its axes as a layout has them."""
    if layout == TOKENS_FIRST:
        return rows.swapaxes(0, 1).copy()
    return rows[0] if layout == "td" else rows


def unlaid_layer(array: Array, layout: str) -> Array:
    """Return a layer's answer as `[b t m]`; one that has other axes stays as it is."""
    if layout == TOKENS_FIRST and array.ndim == len("tbm"):
        return array.swapaxes(0, 1)
    return array[None] if layout == "td" and array.ndim == len("tm") else array


# Whether an error is a refusal in words: the function says that it does not do what a keyword asks for

PLAIN = ("q", "k", "v", "x", "heads", "kv_heads")
"""Roles that no question can do without."""
RAISED = dis.opmap["RAISE_VARARGS"]


def asks(value: Any) -> bool:
    """Say whether a keyword's value asks for anything."""
    return not (value is None or value is False or (isinstance(value, float) and value == 0.0))


def reached(error: BaseException, but: Sequence[str] = ()) -> tuple[int, ...]:
    """Return how far a call came before its error: the place in each function on the way, as something to compare.

    Those of a check are none of its own, nor are those of modules whose names begin with one of some texts.
    """
    places, last = list[int](), error.__traceback__
    while last is not None:
        if not str(last.tb_frame.f_globals.get("__name__", "")).startswith(("attn_exp.diagnosis.", *but)):
            places.append(last.tb_lasti)
        last = last.tb_next
    return tuple(places)


def raised(error: BaseException) -> bool:
    """Say whether somebody wrote `raise` or `assert` for this error; one that arrays of misfit shapes cause is none."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return False
    compiled = str(last.tb_frame.f_globals.get("__name__", "")).startswith("attn_exp.diagnosis.")  # called from here
    return compiled or last.tb_frame.f_code.co_code[last.tb_lasti] == RAISED
