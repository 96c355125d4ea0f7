"""Whether an error is a refusal in words: the function says that it does not do what a keyword asks for."""

from __future__ import annotations

import dis
import re
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from attn_exp.diagnosis.offer import Offer
from attn_exp.errors import UserError

PLAIN = ("q", "k", "v", "x", "heads", "kv_heads")
"""Roles that no question can do without."""
RAISED = dis.opmap["RAISE_VARARGS"]


def refuses(error: BaseException, offer: Offer, said: Mapping[str, Any], answers: Callable[[], bool]) -> bool:
    """Say whether an error means that the function does not offer one of the keywords that it was given.

    It does where it says so (NotImplementedError), where it raises an error that names the keyword, or where it raises
    a ValueError of its own that does not come without those keywords: `answers` asks it without them.
    """
    if isinstance(error, NotImplementedError | UserError):
        return True
    words = [offer.parameters[role] for role in said if role not in PLAIN and not is_neutral(said[role])]
    if not words or not isinstance(error, ValueError | TypeError | AssertionError | RuntimeError) or not raised(error):
        return False
    text = str(error)
    if any(re.search(rf"(?<![^\W_]){re.escape(word)}(?![^\W_])", text) for word in words):
        return True
    return isinstance(error, ValueError) and answers()


def is_neutral(value: Any) -> bool:
    """Say whether a keyword's value asks for nothing."""
    return value is None or value is False or (isinstance(value, float) and value == 0.0)


def raised(error: BaseException) -> bool:
    """Say whether somebody wrote `raise` or `assert` for this error; one that arrays of misfit shapes cause is none."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and (is_ours(last) or last.tb_frame.f_code.co_code[last.tb_lasti] == RAISED)


def is_ours(last: TracebackType) -> bool:
    """Say whether the error came straight from a compiled function that this package called."""
    return str(last.tb_frame.f_globals.get("__name__", "")).startswith("attn_exp.diagnosis.")
