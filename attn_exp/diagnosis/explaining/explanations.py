"""All explanations of evidence in order, and the function that tries them.

Evidence is a function's answers (`Answers`) or numbers in boxes (`Numbers`): those passed to `explain`, which may be
anything, or those of a worksheet, whose layout is known. Likelier and cheaper explanations come first; the first one
that holds is the verdict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from attn_exp.diagnosis.asking.clock import EXPLAINING, SEVERAL, is_over
from attn_exp.diagnosis.explaining.answers import Answers
from attn_exp.diagnosis.explaining.numbers import Numbers
from attn_exp.diagnosis.recipes.candidates import Explained, best

Evidence = Answers | Numbers
FIRST = 1
"""Priority of the plainest explanations, which are tried on every view of the evidence."""


@dataclass(frozen=True)
class Explanation:
    """One way to explain evidence: `tried` returns what it finds, or None.

    `function`, `numbers` and `sheet` are its priorities for these kinds of evidence; None means that it is not tried.
    All explanations of one priority are tried on one view before the next view. `rare` ones are skipped if answers are
    compared to the bits of float32 although their dtype has more. `dear` ones take thousands of tries, and are skipped
    if the trace of a layer already shows all that is wrong.
    """

    name: str
    tried: Callable[[Any], Explained | None]
    function: int | None = None
    numbers: int | None = None
    sheet: int | None = None
    rare: bool = False
    dear: bool = False

    def turn(self, kind: str) -> int | None:
        return {"function": self.function, "numbers": self.numbers, "sheet": self.sheet}[kind]


def one_mistake(evidence: Evidence) -> Explained | None:
    return best(evidence.single_that_fit())


def two_mistakes(evidence: Answers) -> Explained | None:
    return best(evidence.pairs_that_fit())


def another_setting(evidence: Evidence) -> Explained | None:
    return evidence.setting_that_fits()


ONE = "one mistake"

EXPLANATIONS = (
    Explanation("it changes from call to call", Answers.between_calls, function=0),
    Explanation("right", Numbers.as_asked, numbers=1, sheet=1),
    Explanation("right under another convention", Numbers.written_otherwise, numbers=1),
    Explanation(ONE, one_mistake, function=1, numbers=1, sheet=1),
    Explanation("another setting", another_setting, function=1, numbers=2, sheet=3),
    Explanation("the last keys or queries are left out", Answers.tail_dropped, function=1, rare=True),
    Explanation("a mistake under a condition", Answers.under_condition, function=1, rare=True),
    Explanation("a slip", Numbers.slipped, numbers=3, sheet=2),
    Explanation("a mistake and a slip", Numbers.mistake_and_slip, numbers=5, sheet=4),
    Explanation("a mistake, and one of masks besides", Answers.mistake_beside_masks, function=1),
    Explanation("several mistakes", Answers.several_mistakes, function=1, rare=True, dear=True),
    Explanation("two mistakes", two_mistakes, function=1, rare=True, dear=True),
    Explanation("entries of a batch see each other", Answers.batch_mixed, function=3),
)
"""On a worksheet, slips come before other settings: nobody grades a sheet by settings."""


def is_told(view: Evidence) -> bool:
    """Return whether a search is pointless: a trace shows all that is wrong, or no mistake gives this shape."""
    return isinstance(view, Answers) and (view.is_seen() or not view.has_known_shape)


def explained(evidence: Evidence) -> Explained:
    """Return the first explanation that holds, or an empty one."""
    kind = evidence.kind
    turns = sorted({turn for one in EXPLANATIONS if (turn := one.turn(kind)) is not None})
    for turn in turns:
        for view in evidence.views(first=turn == FIRST):
            for explanation in EXPLANATIONS:
                is_tried = explanation.turn(kind) == turn and (view.is_whole or not explanation.rare)
                if is_tried and not (explanation.dear and (is_told(view) or is_over(EXPLAINING, SEVERAL))):
                    found = explanation.tried(view)
                    if found is not None:
                        return replace(found, by=explanation.name, view=view)
    return Explained()
