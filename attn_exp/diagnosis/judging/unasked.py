"""What a check could not ask of a function, each with the reason: a verdict says nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from inspect import isroutine

from attn_exp.diagnosis.asking.layouts import has_batch, has_heads
from attn_exp.diagnosis.asking.offer import parameters_of, plain, words_set_aside
from attn_exp.diagnosis.asking.questions import CROSS
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.finding.ways_to_call import Seen
from attn_exp.diagnosis.finding.ways_to_mask import ANY_IS_CAUSAL
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.diagnosis.matrices.plain_layers import held_by
from attn_exp.errors import UserError

MOST = 90
"""Letters of an error that are shown."""
ASKED = {
    "unequal lengths": "other keys than queries",
    "another head size": "another head size",
    "fewer key/value heads": "fewer key/value heads",
    "shared heads": "fewer key/value heads",
    CROSS: "cross attention",
    "a mask for each entry": "a mask for each entry",
    "a mask for each head": "a mask for each head",
    "masks": "masks",
    "padding": "padding",
    "causal": "causal masks",
}
"""The questions whose absence a reader should know of, as they are called then."""


def unasked(caller: Caller, function: Bound, seen: Seen) -> tuple[str, ...]:
    """Return what could not be asked, in words such as `cross attention (it takes one input)`."""
    every = (no_word_for(caller, function), refused(seen), words_left_out(caller, function), never_read(function))
    return tuple(dict.fromkeys(said for some in every for said in some))


OF_LAYERS = ("call", "forward", "__call__")


def never_read(function: Bound) -> Iterator[str]:
    """Yield the words for masks that the code of a function takes and never reads, where another one counts."""
    made = getattr(function.layer, "module", function.origin)
    if not isroutine(made):
        made = next((one for word in OF_LAYERS if isroutine(one := held_by(made, word))), made)
    with suppress(UserError):  # what it takes is not known
        yield from (f"{word} (its code never reads it)" for word in words_set_aside(made))


def words_left_out(caller: Caller, function: Bound) -> Iterator[str]:
    """Yield the words that a module may be given and was not, as nobody knows what they do."""
    forward = getattr(function.origin, "forward", None)
    if caller.offer.core or function.layer is None or forward is None:
        return
    known = {*caller.offer.parameters.values(), *function.given}
    words = [one.name for one in parameters_of(forward, "")
             if one.name not in known and (one.default is None or one.default is False)]  # fmt: skip
    words += other_masks(caller, function)
    words += [word for word in function.masked if word not in words]
    words = [word for word in words if not any(part in plain(word) for part in SHOWN)]
    if words:
        yield f"what {', '.join(words[:MOST_WORDS])} would do"


def other_masks(caller: Caller, function: Bound) -> list[str]:
    """Return the words for masks that a module is always given as nobody knows what they say: what hides nothing."""
    asked = caller.offer.parameters.values()
    return [word for word in function.given if "mask" in plain(word) and word not in (*asked, *function.masked)]


SHOWN = ("weights", "output", "return", "training", "attn", "attentions", "verbose", "deterministic")
"""Parts of words that say what is returned, or in which mode."""
MOST_WORDS = 4


def no_word_for(caller: Caller, function: Bound) -> Iterator[str]:
    """Yield what a function has no room for, by what it takes."""
    offer, layout = caller.offer, caller.layout
    if not offer.core and not offer.takes("memory"):
        yield "cross attention (it takes one input)"
    if ANY_IS_CAUSAL in offer.said:
        yield f"other masks ({ANY_IS_CAUSAL})"
    takes_any = any(offer.takes(role) for role in ("mask", "padding", "causal", "lengths"))
    if not takes_any and not other_masks(caller, function) and not function.masked:
        yield "other masks (it has no word for one)" if caller.request.masks else "masks (it has no word for one)"
    if offer.core and not has_heads(layout):
        yield "several heads (it takes one)"
    if offer.core and not has_batch(layout):
        yield "a batch (it takes one entry)"
    if offer.core and caller.is_made:
        yield "another head size (it was made before)"
    if not offer.core and function.inside is not None:
        yield "other sizes of its matrices (they are its own)"


def refused(seen: Seen) -> Iterator[str]:
    """Yield the questions that were refused, each with the function's own error."""
    answered = {case.rung for case, answer in seen if answer.output is not None}
    for case, answer in seen:
        what = OF_ANOTHER_LENGTH if case.rung == CROSS and case.rung in answered else ASKED.get(case.rung, "")
        if answer.output is None and what and (case.rung not in answered or what == OF_ANOTHER_LENGTH):
            said = answer.error if len(answer.error) <= MOST else f"{answer.error[:MOST].rstrip()} ..."
            yield f"{what} ({said})"


OF_ANOTHER_LENGTH = "keys of another length"
"""What is refused of another input by what takes one of as many tokens."""
