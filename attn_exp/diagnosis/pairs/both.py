"""Prepare two implementations: how each is called, with which weights, and the cases that fit both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.layouts import WIDE, has_batch, has_heads, is_joined
from attn_exp.diagnosis.asking.offer import Offer, at_of
from attn_exp.diagnosis.asking.questions import HeadsMaker, LayerMaker, core_cases, layer_cases
from attn_exp.diagnosis.asking.request import Request, with_words
from attn_exp.diagnosis.calling.behaviour import masked
from attn_exp.diagnosis.calling.bound import Bound
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.finding import ways_to_call, ways_to_mask
from attn_exp.diagnosis.judging.check_layer import is_layer, look
from attn_exp.diagnosis.pairs.parting import EMPTY_ROWS, Pair
from attn_exp.experiment.verdict import Verdict
from attn_exp.own_code import OwnFunction
from attn_exp.rules.masks.causal import Causal

OWN = ("convention", "layout", "dtype", "takes", "device")
"""Settings that say how a function wants its input, not what it computes; each side has its own."""
BY_MASK = ("causal", "window", "padding", "lengths")
"""Roles that a mask can replace if a function has no argument for them."""


@dataclass(frozen=True, eq=False)
class Asked:
    """One of the two: its name, its verdict, and how to call it, or None before that is known.

    `function` is what is called; `owned` is the original function if `function` holds the other side's weights.
    """

    own: OwnFunction
    name: str
    verdict: Verdict
    function: Bound | None = None
    caller: Caller | None = None
    owned: Bound | None = None

    def takes(self, role: str) -> bool:
        """Return whether it takes a role, by an argument of its own or by a mask."""
        offer = self.called.offer
        return offer.takes(role) or (role in BY_MASK and offer.takes("mask"))

    @property
    def called(self) -> Caller:
        assert self.caller is not None
        return self.caller


Both = tuple[Asked, Asked]


def names_of(both: Both) -> tuple[str, str]:
    return both[0].name, both[1].name


def common_request(both: Both, request: Request) -> Request:
    """Return the request for both: the user's settings, plus the rules under which one of them is right.

    The rules are added only if both follow or take them.
    """
    rules = [rules_of(side) for side in both]
    words = list(dict.fromkeys([*rules[0], *rules[1]]))
    if not words or any(word.partition("=")[0].split(".")[0] in request.said for word in words):
        return request
    told = all(
        set(words) <= set(own) or (set(words) == {"mask=causal"} and side.takes("causal"))
        for side, own in zip(both, rules, strict=True)
    )
    return with_words(request, " ".join(words)) if told else request


def rules_of(side: Asked) -> list[str]:
    """Return the rules that nobody requested but under which a function is right, as settings."""
    return [word for word in side.verdict.right_under.split() if word.partition("=")[0] not in OWN]


def called(side: Asked, common: Request) -> Asked:
    """Find out how to call one of the two, under its own convention."""
    own = [word for word in side.verdict.right_under.split() if word.partition("=")[0] in OWN]
    request = with_words(common, " ".join(own)) if own else common
    known = look(side.own, request) if is_layer(side.own.function) else None
    tried = ways_to_call.how_to_call(side.own, request, known)
    caller = ways_to_mask.with_its_mask(tried.caller, tried.function)
    return replace(side, function=tried.function, caller=caller)


def matrices_of_both(first: Asked, second: Asked) -> tuple[Both, str] | None:
    """Return both with the same weights, and how they got them; None if they cannot run the same cases."""
    assert first.function is not None and second.function is not None
    insides = [side.function.inside for side in (first, second) if side.function is not None]
    if first.called.offer.core != second.called.offer.core or (insides[0] is None) != (insides[1] is None):
        return None
    if insides[0] is None:
        return (first, second), ""
    how = exchanged(first.function, second.function, names_of((first, second)))
    return None if not how else ((first, replace(second, function=first.function, owned=second.function)), how)


# The cases for both


def asked_of_both(both: Both, common: Request, quick: bool) -> Iterator[Pair]:
    """Yield each case that both support, with the answers."""
    for asked in cases_of_both(both, common, quick):
        case = ways_to_call.rounded(ways_to_call.rounded(asked, both[0].called), both[1].called)
        if any(ways_to_call.beyond(side.called, case) for side in both):
            continue
        answers = (both[0].called(case), both[1].called(case))
        bits = [ways_to_call.digits_of(side.called, answer) for side, answer in zip(both, answers, strict=True)]
        yield Pair(case, answers, min(bits))


def cases_of_both(both: Both, common: Request, quick: bool) -> Iterator[Case]:
    """Yield the cases that fit both, and those that reveal different conventions."""
    offer, layout = joint_offer(both), joint_layout(both)
    if not offer.core:
        assert both[0].function is not None
        yield from layer_cases(common, offer, quick, both[0].function.inside)
        if offer.takes("mask"):
            yield one_row_hidden(LayerMaker(common, offer, both[0].function.inside).case(EMPTY_ROWS, 6, 6))
        return
    asked = list(core_cases(common, offer, layout, quick))
    yield from asked
    maker = HeadsMaker(common, offer, layout, layout, one_size=0)
    causal = common.is_causal
    if (causal or offer.takes("causal")) and all(aligns(side) for side in both):
        masks = common.masks if causal else (*common.masks, Causal())
        for rows, keys in ((5, 9), (9, 5)):
            yield maker.case("causal, unequal lengths", rows, keys, masks=masks, optional=True)
    if maker.heads > 1 and common.kv_head is None and not any(case.rung == "shared heads" for case in asked):
        yield maker.case("shared heads", 7, 7, groups=2, optional=True)
    if offer.takes("mask"):
        yield one_row_hidden(maker.case(EMPTY_ROWS, 6, 6))


def one_row_hidden(case: Case) -> Case:
    """Return a case in which one query sees no key."""
    sizes = at_of(case)
    seen = np.ones((sizes.rows, sizes.keys), np.bool_)
    seen[sizes.rows // 2] = False
    return replace(masked(case, seen), optional=True)


def aligns(side: Asked) -> bool:
    """Return whether a function aligns causal masks itself rather than receiving them as a mask."""
    return side.called.offer.takes("causal") or not side.called.offer.takes("mask")


def joint_offer(both: Both) -> Offer:
    """Return the arguments that both accept."""
    first, second = both
    offer, more = first.called.offer, second.called.offer.parameters
    roles = {role: name for role, name in offer.parameters.items() if second.takes(role)}
    roles |= {role: name for role, name in more.items() if role not in roles and first.takes(role)}
    if "W_o" in offer.parameters and "W_o" in more:
        roles["W_o"] = offer.parameters["W_o"]
    return replace(offer, parameters=roles, positional=(), defaults={})


def joint_layout(both: Both) -> str:
    """Return the layout of the cases: without batch or heads if one of the two has none."""
    layouts = [side.called.layout for side in both]
    if all(map(is_joined, layouts)):
        return WIDE
    with_batch, with_heads = all(map(has_batch, layouts)), all(map(has_heads, layouts))
    return ("bhtd" if with_heads else "btd") if with_batch else "htd" if with_heads else "td"


# The same weights in both, so that the same x must give the same output


def exchanged(first: Bound, second: Bound, names: tuple[str, str]) -> str:
    """Copy the parameters of the first module into the second and describe that; empty if names or shapes differ."""
    one, other = parameters(first.origin), parameters(second.origin)
    if one and sizes(one) == sizes(other):
        with suppress(RuntimeError, ValueError):
            second.origin.load_state_dict(one)
            return f"with the parameters of {names[0]} in both"
    return ""


def parameters(module: Any) -> dict[str, Any]:
    """Return the parameters and buffers of a PyTorch module; empty for anything else."""
    return dict(module.state_dict()) if hasattr(module, "state_dict") and hasattr(module, "load_state_dict") else {}


def sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.shape for name, value in values.items()}
