"""What may explain evidence, in one ordered list, and the one function that goes through it.

Evidence is the answers of a function (`Answers`), or numbers in boxes (`Numbers`): those of `explain`, which may be
anything, or those of a worksheet, which says how they are written. An explanation is tried in its turn, the likelier
and the cheaper ones first; the first that holds is the verdict.
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
"""The turn of the plainest explanations, which are tried on every view of the evidence."""


@dataclass(frozen=True)
class Explanation:
    """One way to explain evidence: `tried` returns what it finds, or None.

    `function`, `numbers` and `sheet` are its turn for that kind of evidence, None where it is not tried. Those of one
    turn are tried one after another on a view of the evidence, before the next view. `rare`: it is left out where
    answers are held to the bits of float32 although their type has more. `dear`: it takes some thousands of tries, and
    is left out where what is seen inside a layer tells all.
    """

    name: str
    tried: Callable[[Any], Explained | None]
    function: int | None = None
    numbers: int | None = None
    sheet: int | None = None
    rare: bool = False
    dear: bool = False

    def turn(self, kind: str) -> int | None:
        """Return its turn for a kind of evidence."""
        return {"function": self.function, "numbers": self.numbers, "sheet": self.sheet}[kind]


def one_mistake(evidence: Evidence) -> Explained | None:
    """Explain the evidence by one mistake."""
    found = best(evidence.single_that_fit())
    return None if found is None else evidence.likelier(found)


def two_mistakes(evidence: Evidence) -> Explained | None:
    """Explain the evidence by two mistakes."""
    return best(evidence.pairs_that_fit())


def another_setting(evidence: Evidence) -> Explained | None:
    """Explain the evidence as right under another setting."""
    found = evidence.setting_that_fits()
    return evidence.likelier(found) if found else None


ONE, TWO = "one mistake", "two mistakes"

EXPLANATIONS = (
    Explanation("it changes from call to call", Answers.between_calls, function=0),
    Explanation("right", Numbers.as_asked, numbers=1, sheet=1),
    Explanation("right under another convention", Numbers.written_otherwise, numbers=1),
    Explanation(ONE, one_mistake, function=1, numbers=1, sheet=1),
    Explanation("another setting", another_setting, function=1, numbers=2, sheet=3),
    Explanation("the last keys or queries are left out", Answers.tail_dropped, function=1, rare=True),
    Explanation("a mistake under a condition", Answers.under_condition, function=1, rare=True),
    Explanation("more rounding than needed", Numbers.rounding, numbers=2),
    Explanation("a slip", Numbers.slipped, numbers=3, sheet=2),
    Explanation("a mistake and a slip", Numbers.mistake_and_slip, numbers=5, sheet=4),
    Explanation("a mistake, and one of masks besides", Answers.mistake_beside_masks, function=1),
    Explanation("several mistakes", Answers.several_mistakes, function=1, rare=True, dear=True),
    Explanation(TWO, two_mistakes, function=1, numbers=4, sheet=5, rare=True, dear=True),
    Explanation("entries of a batch see each other", Answers.batch_mixed, function=3),
)
"""Of a worksheet a slip is looked for before another setting, as nobody grades a sheet by settings, and a mistake and a
slip before two mistakes: it is likelier there, and takes a sixth of the time."""


def is_told(view: Evidence) -> bool:
    """Say whether what is seen inside a layer tells all that is wrong, or no mistakes make answers of such a shape."""
    return isinstance(view, Answers) and (view.is_seen() or not view.has_known_shape)


def explained(evidence: Evidence) -> Explained:
    """Return the first explanation that holds for evidence that is not right, or one of nothing."""
    kind = evidence.kind
    turns = sorted({turn for one in EXPLANATIONS if (turn := one.turn(kind)) is not None})
    for turn in turns:
        for view in evidence.views(first=turn == FIRST):
            for explanation in EXPLANATIONS:
                is_tried = explanation.turn(kind) == turn and (view.is_whole or not explanation.rare)
                if is_tried and not (explanation.dear and (is_told(view) or is_over(EXPLAINING, SEVERAL))):
                    found = explanation.tried(view)
                    if found is not None:
                        nearer = view.nearer_with_masks(found) if isinstance(view, Answers) else None
                        return replace(nearer or found, by=explanation.name, view=view)
    return Explained()
