"""What a mistake is: steps of attention done otherwise, with the words that name it and mend it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attn_exp.forms.pipeline import Recipe

Change = Callable[[Recipe], Recipe]


@dataclass(frozen=True)
class Mistake:
    """One way to compute attention wrongly.

    `says` is a sentence that a student understands, `fix` mends it in one line, `seen` is where it was found in the
    wild. `stage` is the first stage that it changes. `changes` are the ways in which people make it: each takes a
    recipe and returns the wrong one. Without any, only several calls show it, and the check finds it by asking twice.
    `needs` are the settings without which nobody could tell: all of them must be asked for. A `remark` is no failure:
    plain code that is otherwise right does it too.
    """

    group: str
    says: str
    fix: str
    seen: str
    stage: str
    changes: tuple[Change, ...] = ()
    needs: tuple[str, ...] = ()
    remark: bool = False
