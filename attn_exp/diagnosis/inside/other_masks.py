"""What a layer makes of its other masks: of words for one beside the one that it is asked about, or unusual ones.

Nobody promised what such a word says. So it counts where the layer is right with it, and where what is wrong has the
name of a mistake of masks; else it says no more than that it was not judged. A mask that changes nothing is a mistake
where a call cannot do without it, and there is no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from attn_exp.diagnosis.asking.offer import Offer, is_of_edges
from attn_exp.diagnosis.inside.other_words import BLOCKS
from attn_exp.diagnosis.matrices.bound import Bound
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, REMARK, Finding, Verdict
from attn_exp.mistakes import mistake

IGNORED, TURNED, CHANGED = "mask_ignored", "mask_transposed", "changes_inputs"
OF_QUERIES = "padding_on_queries"
AS_MEANT = "rows are keys and columns queries, as of edges from one to another"
HIDES = "True in it hides"
MOST = 2
"""So many words are asked: each is a check of its own."""


def of_other_masks(function: Bound, verdict: Verdict, ask: Callable[[Bound], Verdict]) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of a layer's other masks, where `verdict` is that on the layer and `ask` checks one."""
    is_only = len(function.masked) == 1 and function.offer is not None and not function.offer.takes("mask")
    for place, (word, made) in enumerate(function.masked.items()):
        rung = f"masks as {word}"
        said = asked(made(), ask) if place < MOST else None
        more = [] if said is None else [name for name in said.mistakes if name not in verdict.mistakes]
        if CHANGED in more:
            yield Finding(rung, BROKEN, "a call writes to it"), CHANGED
        if said is not None and BLOCKS in said.right_under:
            is_usual = "pad" in word or not is_only  # of padding, every library means so
            yield (
                Finding(rung, HELD if is_usual else REMARK, HIDES if is_usual else f"{HIDES}: a mistake, if not meant"),
                "",
            )
        elif said is not None and said.passed:
            yield Finding(rung, HELD), ""
        elif more == [IGNORED] and is_only and word in function.needed:
            yield Finding(rung, BROKEN, mistake(IGNORED).says), IGNORED
        elif more == [IGNORED]:
            yield Finding(rung, REMARK, "changes nothing: it may be for another way of calling"), ""
        elif more == [TURNED] and is_of_edges(word):
            yield Finding(rung, REMARK, AS_MEANT), ""
        elif more == [OF_QUERIES] and not is_only:  # it may be meant for them
            yield Finding(rung, REMARK, "it hides queries, or what they get, and no keys"), ""
        elif more and all(mistake(name).group == "masks" for name in more if name != CHANGED):
            yield from ((Finding(rung, BROKEN, mistake(name).says), name) for name in more if name != CHANGED)
        else:
            yield Finding(rung, ABSENT, "not judged: what it should say is not known"), ""


def asked(function: Bound, ask: Callable[[Bound], Verdict]) -> Verdict:
    """Return the verdict on a layer with another word for a mask; where it is refused, on it as one of keys alone."""
    said = ask(function)
    refused = any(one.rung == "masks" and re.match(r"\w*Error: ", one.said) for one in said.findings)
    of_keys = of_padding_alone(function) if refused and not said.mistakes else None
    return said if of_keys is None else ask(of_keys)


def of_padding_alone(function: Bound) -> Bound | None:
    """Return a layer whose masks can say no more than which keys are padding; None where it has no word for a mask."""
    offer = function.offer
    if offer is None or not offer.takes("mask"):
        return None
    return replace(function, offer=offer.of_keys_alone())


def without_its_mask(offer: Offer, verdict: Verdict, ask: Callable[[Offer], Verdict]) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of a function without a mask that it was given in each call, and can do without.

    It may be causal then on purpose, or bear no call without one.
    """
    known = verdict.passed or verdict.mistakes or verdict.right_under
    if not offer.always or not known:
        return
    said = ask(offer.without(*offer.always))
    more = [name for name in said.mistakes if name not in verdict.mistakes]
    if more and not said.passed:
        yield from ((Finding(WITHOUT, BROKEN, mistake(name).says), name) for name in more)
    elif said.passed or said.mistakes or said.right_under:
        yield Finding(WITHOUT, HELD, said.right_under), ""
    elif not said.uncalled:
        yield Finding(WITHOUT, REMARK, "it computes something else then"), ""


def given_none(
    function: Bound, offer: Offer, verdict: Verdict, ask: Callable[[Bound], Verdict]
) -> Iterator[tuple[Finding, str]]:  # fmt: skip
    """Yield what is wrong with the causal mask that a function makes where it is given None for one that it needs.

    `ask` checks it as a causal one. Nobody promised that it takes None, so that no more is said of it.
    """
    word = offer.parameters.get("mask", "")
    known = verdict.passed or verdict.mistakes or verdict.right_under
    if not known or not offer.core or not word or "mask" in offer.defaults or word in offer.positional:
        return

    def call(*positional: Any, **named: Any) -> Any:
        return function.call(*positional, **named, **{word: None})

    said = ask(replace(function, call=call, offer=offer.without("mask")))
    more = [name for name in said.mistakes if name not in verdict.mistakes]
    if more and all(name in OTHERWISE for name in more):
        yield from ((Finding(WITHOUT, BROKEN, mistake(name).says), name) for name in more)


OTHERWISE = {"causal_strict", "causal_next", "causal_flipped"}
"""What a causal mask is that hides others than it should."""
WITHOUT = "without a mask"


def as_meant(verdict: Verdict, offer: Offer) -> Verdict:
    """Return the verdict on a function whose mask is transposed and nothing else: of words like `edge_mask` none is."""
    word = offer.parameters.get("mask", "")
    if verdict.mistakes != (TURNED,) or not is_of_edges(word):
        return verdict
    findings = [
        replace(one, state=REMARK, said=f"right where {AS_MEANT}") if one.state == BROKEN else one
        for one in verdict.findings
    ]
    computes = f"attention as it was asked for; of {word} {AS_MEANT}"
    return replace(verdict, passed=True, mistakes=(), smallest=None, computes=computes, findings=tuple(findings))
