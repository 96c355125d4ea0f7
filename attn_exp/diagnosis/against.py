"""Two implementations beside each other: where they agree, where they part first, and what parts them.

Each is checked against the definition by itself; that says what it computes, in the words of the catalogue. Then both
are asked the same questions, each in its own way: its own library, layout, names and convention of masks. What parts
them (`parting.py`) follows from what either makes of those questions. Modules are asked with the same matrices
(`same_matrices.py`); where these cannot be exchanged, and where one takes heads and the other x, each is held against
the definition with its own.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from attn_exp.diagnosis import ways_to_call
from attn_exp.diagnosis.answers import SINGLE
from attn_exp.diagnosis.behaviour import leak, masked
from attn_exp.diagnosis.call import WIDE, Caller
from attn_exp.diagnosis.case import Answer, Case, expected, same_answer
from attn_exp.diagnosis.check import Tell, axes, check
from attn_exp.diagnosis.command import understood
from attn_exp.diagnosis.modules import Bound
from attn_exp.diagnosis.offer import Offer
from attn_exp.diagnosis.parting import EMPTY_ROWS, Cause, Pair, causes, first_stage
from attn_exp.diagnosis.questions import HeadsMaker, core_cases, layer_cases
from attn_exp.diagnosis.request import Request
from attn_exp.diagnosis.same_matrices import exchanged
from attn_exp.diagnosis.smallest import MOST_CALLS, as_python, small_case, smaller
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import (
    ABSENT,
    ANSWERED,
    BROKEN,
    CALLED,
    HELD,
    REMARK,
    Finding,
    Side,
    Smallest,
    Verdict,
)
from attn_exp.own_code import OwnFunction, held
from attn_exp.rules.masks.causal import Causal

OWN = ("convention", "layout", "dtype", "takes", "device")
"""Words that say how a function wants its input, and not what it should compute: each side has its own."""
BY_MASK = ("causal", "window", "padding", "lengths")
"""What a function without a word for it can be told by a mask."""
OFFERS = {"mask": "a mask", "added": "numbers to add to the logits", "padding": "a mask of filler", "lengths": "lengths",
          "causal": "a word for causal", "window": "a window", "scale": "a scale", "softcap": "a cap of the logits",
          "alibi": "slopes", "sinks": "sinks", "W_o": "W_o", "b_q": "biases"}  # fmt: skip
"""What only one of the two may offer, in a reader's words."""


@dataclass(frozen=True, eq=False)
class Asked:
    """One of the two: its name here, its own verdict, and how it is called. `caller` is None where it was not."""

    own: OwnFunction
    name: str
    verdict: Verdict
    function: Bound | None = None
    caller: Caller | None = None

    def takes(self, role: str) -> bool:
        """Say whether it can be told what a role says, by a word of its own or by a mask."""
        offer = self.called.offer
        return offer.takes(role) or (role in BY_MASK and offer.takes("mask"))

    @property
    def called(self) -> Caller:
        """How it is called."""
        assert self.caller is not None
        return self.caller


Both = tuple[Asked, Asked]


def against(
    one: OwnFunction, other: OwnFunction, request: Request, quick: bool = False, tell: Tell = lambda rung: None
) -> Verdict:
    """Ask two functions the same, and return where they agree and what parts them.

    Raises:
        UserError: what one of them takes is not known, or settings that cannot be asked of it.
    """
    start = perf_counter()
    names = two_names(one, other)
    asked = []
    for own, name in zip((apart(one), apart(other)), names, strict=True):
        verdict = check(own, request, quick, lambda rung, name=name: tell(f"{name}, {rung}" if rung else ""))
        if verdict.uncalled:
            return replace(verdict, name=name)
        asked.append(Asked(own, name, verdict))
    with held(), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        verdict = of_both((asked[0], asked[1]), request, quick, tell)
    return replace(verdict, seconds=perf_counter() - start)


def two_names(one: OwnFunction, other: OwnFunction) -> tuple[str, str]:
    """Return a name for each: the function's own, with its file where both have the same."""
    first, second = one.name, other.name
    if first == second:
        first, second = one.target or f"{one.file}:{first}", other.target or f"{other.file}:{second}"
    return (first, second) if first != second else (f"{first} (first)", f"{second} (second)")


def apart(own: OwnFunction) -> OwnFunction:
    """Return a function; a module that is made already as a copy, which matrices can be written into."""
    if not hasattr(own.function, "state_dict") or inspect.isclass(own.function):
        return own
    return replace(own, function=copy.deepcopy(own.function))


def of_both(both: Both, request: Request, quick: bool, tell: Tell) -> Verdict:
    """Compare two functions that were checked."""
    silent = [side for side in both if any(one.rung == ANSWERED and one.state == BROKEN for one in side.verdict.findings)]
    if silent:
        said = " ".join(f"{side.name} gives no answer: it computes {side.verdict.computes}." for side in silent)
        return verdict_of(both, request, [Cause((), said, ())], [], None)
    tell("both, the same questions")
    common = common_request(both, request)
    first, second = (called(side, common) for side in both)
    same = matrices_of_both(first, second)
    if same is None:
        return by_definition((first, second), request)
    both, how = same
    pairs = [pair for pair in asked_of_both(both, common, quick) if pair.answers[0].output is not None
             or pair.answers[1].output is not None]  # fmt: skip
    digits, rounding = bits_to_judge_by(pairs, both)
    parted = [pair for pair in pairs if pair.part(digits)]
    found = [*by_themselves(both, request), *causes(parted, pairs, (both[0].verdict, both[1].verdict), names_of(both), digits)]
    if parted and not any(cause.known for cause in found):
        found.append(Cause((), first_stage((both[0].called, both[1].called), parted[0].case, names_of(both), digits), ()))
    findings = [Finding(CALLED, HELD, said_of_calls(both, how)), *findings_of(pairs, parted, names_of(both), rounding)]
    findings += [*only_one_offers(both), *nan_behind_a_mask(both, pairs)]
    tell("the smallest input on which they differ")
    small = smallest_of_both(both, parted, digits) if parted else None
    tell("")
    return verdict_of(both, request, found, findings, small)


def names_of(both: Both) -> tuple[str, str]:
    return both[0].name, both[1].name


def common_request(both: Both, request: Request) -> Request:
    """Return what is asked of both: the words that were typed, and the rules under which one of them is right."""
    rules = [word for side in both for word in side.verdict.right_under.split() if word.partition("=")[0] not in OWN]
    if not rules or any(word.partition("=")[0].split(".")[0] in request.said for word in rules):
        return request
    return with_words(request, list(dict.fromkeys(rules)))


def with_words(request: Request, words: Sequence[str]) -> Request:
    """Return a request under more words."""
    how = {key: str(getattr(request, key)) for key in ("layout", "takes", "device", "dtype") if getattr(request, key)}
    said = {key: f"{key}={value}" for key, value in how.items()}
    said |= {word.partition("=")[0]: word for word in (*request.typed, *words)}
    return replace(understood(list(said.values())), tell=request.tell)


def called(side: Asked, common: Request) -> Asked:
    """Return one of the two with how it is called, under its own convention."""
    own = [word for word in side.verdict.right_under.split() if word.partition("=")[0] in OWN]
    request = with_words(common, own) if own else common
    tried = ways_to_call.how_to_call(side.own, request)
    caller = ways_to_call.with_its_mask(tried.caller, tried.function)
    return replace(side, function=tried.function, caller=caller)


def matrices_of_both(first: Asked, second: Asked) -> tuple[Both, str] | None:
    """Return both with the same matrices inside, and how they got them; None where the same cannot be asked of both."""
    assert first.function is not None and second.function is not None
    insides = [side.function.inside for side in (first, second) if side.function is not None]
    if first.called.offer.core != second.called.offer.core or (insides[0] is None) != (insides[1] is None):
        return None
    if insides[0] is None:
        return (first, second), ""
    how = exchanged(first.function, second.function, names_of((first, second)))
    return None if not how else ((first, replace(second, function=first.function)), how)


# The questions to both


def asked_of_both(both: Both, common: Request, quick: bool) -> Iterator[Pair]:
    """Yield each question that both can be asked, with the answers."""
    for case in cases_of_both(both, common, quick):
        if any(ways_to_call.beyond(side.called, case) for side in both):
            continue
        for side in both:
            case = ways_to_call.rounded(case, side.called)
        answers = (both[0].called(case), both[1].called(case))
        bits = [ways_to_call.digits_of(side.called, answer) for side, answer in zip(both, answers, strict=True)]
        yield Pair(case, answers, min(bits))


def cases_of_both(both: Both, common: Request, quick: bool) -> Iterator[Case]:
    """Yield the questions that fit what both take, and those that tell two implementations apart."""
    offer, layout = joint_offer(both), joint_layout(both)
    if not offer.core:
        assert both[0].function is not None
        yield from layer_cases(common, offer, quick, both[0].function.inside)
        return
    asked = list(core_cases(common, offer, layout, quick))
    yield from asked
    maker = HeadsMaker(common, offer, layout)
    causal = any(isinstance(mask, Causal) for mask in common.masks)
    if (causal or offer.takes("causal")) and all(aligns(side) for side in both):
        masks = common.masks if causal else (*common.masks, Causal())
        for rows, keys in ((5, 9), (9, 5)):
            yield maker.case("causal, unequal lengths", rows, keys, masks=masks, optional=True)
    if maker.heads > 1 and common.kv_head is None and not any(case.rung == "shared heads" for case in asked):
        yield maker.case("shared heads", 7, 7, groups=2, optional=True)
    if offer.takes("mask"):
        case = maker.case(EMPTY_ROWS, 6, 6)
        seen = np.ones((6, 6), np.bool_)
        seen[3] = False
        yield replace(masked(case, seen), optional=True)


def aligns(side: Asked) -> bool:
    """Say whether a function aligns causal masks itself: one that gets them as a mask is told."""
    return side.called.offer.takes("causal") or not side.called.offer.takes("mask")


def joint_offer(both: Both) -> Offer:
    """Return what both can be told."""
    first, second = both
    offer, more = first.called.offer, second.called.offer.parameters
    roles = {role: name for role, name in offer.parameters.items() if second.takes(role)}
    roles |= {role: name for role, name in more.items() if role not in roles and first.takes(role)}
    if "W_o" in offer.parameters and "W_o" in more:
        roles["W_o"] = offer.parameters["W_o"]
    return replace(offer, parameters=roles, positional=(), defaults={})


def joint_layout(both: Both) -> str:
    """Return the layout in which questions are made: without a batch or heads where one of the two has none."""
    layouts = [side.called.layout for side in both]
    smaller = next((layout for layout in ("td", "htd") if layout in layouts), "bhtd")
    return WIDE if layouts == [WIDE, WIDE] else smaller


def bits_to_judge_by(pairs: Sequence[Pair], both: Both) -> tuple[int, str]:
    """Return to how many bits the answers are held, fewer where all of them agree so far, and what is said of that."""
    own = min((pair.digits for pair in pairs), default=53)
    apart = max((pair.gap for pair in pairs if pair.gap is not None and np.isfinite(pair.gap)), default=0.0)
    if own <= SINGLE or not any(pair.part(own) for pair in pairs) or any(pair.part(SINGLE) for pair in pairs):
        return own, f"within {apart * 2.0 ** (own - 1):.2g} units in the last place of the largest number"
    units = f"apart by up to {apart:.1g} of the largest number: {apart * 2.0 ** (SINGLE - 1):.2g} units of float32"
    coarse = [side.name for side in both if any("float32" in one.said for one in side.verdict.findings if one.rung == "accuracy")]
    return SINGLE, f"{units}, in which {' and '.join(coarse) or 'one of them'} computes"


# What is said of it


def by_themselves(both: Both, request: Request) -> list[Cause]:
    """Return what parts two functions before anything is asked: a rule that only one keeps unasked, or inverted masks."""
    made = []
    rules = [" ".join(word for word in side.verdict.right_under.split() if word.partition("=")[0] not in OWN) for side in both]
    if rules[0] != rules[1]:
        said = [f"{side.name} is right under {rule} without being told" if rule else f"{side.name} is not" for side, rule in zip(both, rules, strict=True)]
        made.append(Cause(("values",), f"{said[0]}, {said[1]}" if rules[0] else f"{said[1]}, {said[0]}", rules, known=True))
    turned = [side for side in both if not side.verdict.passed and "convention=" in side.verdict.right_under]
    if len(turned) == 1:
        side = turned[0]
        said = f"a mask's True means the opposite for {side.name} ({side.verdict.right_under}); asked so, the other questions stand below"
        made.append(Cause(("masks",), said, (side.verdict.right_under,), known=True))
    return made


def said_of_calls(both: Both, how: str) -> str:
    """Say how each is called."""
    said = []
    for side in both:
        caller = side.called
        what = f"q, k, v [{axes(caller.layout)}]" if caller.offer.core else "x"
        masks = f", {caller.masking}" if str(caller.masking) else ""
        own = f", under {side.verdict.right_under}" if side.verdict.right_under else ""
        said.append(f"{side.name} with {what}, {caller.library.name}, {caller.dtype}{masks}{own}")
    return "; ".join([*said, *([how] if how else [])])


def findings_of(
    pairs: Sequence[Pair], parted: Sequence[Pair], names: tuple[str, str], rounding: str
) -> Iterator[Finding]:
    """Yield a finding for each kind of question."""
    lost = {pair.case for pair in parted}
    for rung in dict.fromkeys(pair.case.rung for pair in pairs):
        questions = [pair for pair in pairs if pair.case.rung == rung]
        bad = [pair for pair in questions if pair.case in lost]
        alone = [pair for pair in questions if None in (pair.answers[0].output, pair.answers[1].output)]
        if bad:
            yield Finding(rung, BROKEN, bad[0].how_far())
        elif alone:
            mute = int(alone[0].answers[1].output is None)
            yield Finding(rung, ABSENT, f"only {names[1 - mute]} answers; {names[mute]}: {alone[0].answers[mute].error}")
        else:
            yield Finding(rung, HELD)
    if not parted and rounding:
        yield Finding("rounding", REMARK if "float32" in rounding else HELD, rounding)


def only_one_offers(both: Both) -> Iterator[Finding]:
    """Yield what only one of the two can be told."""
    for role, words in OFFERS.items():
        takers = [side for side in both if side.takes(role)]
        if len(takers) == 1:
            yield Finding(words, ABSENT, f"only {takers[0].name} takes {words} ({takers[0].called.offer.parameters.get(role, 'mask')})")


def nan_behind_a_mask(both: Both, pairs: Sequence[Pair]) -> Iterator[Finding]:
    """Yield a remark where NaN in a hidden value reaches the answer of one of the two alone."""
    case = next((pair.case for pair in pairs if pair.case.given.v is not None and pair.case.recipe.heads == pair.case.recipe.groups), None)
    if case is None or case.given.q is None or case.given.v is None or not all(side.called.offer.takes("mask") for side in both):
        return
    seen = np.ones((case.given.q.shape[2], case.given.v.shape[2]), np.bool_)
    seen[:, -1] = False
    states = [leak(side.called, masked(case, seen))[0].state for side in both]
    if set(states) == {REMARK, HELD}:
        yield Finding("NaN behind a mask", REMARK, f"it reaches the answer of {both[states.index(REMARK)].name} alone")


def verdict_of(
    both: Both, request: Request, found: Sequence[Cause], findings: Sequence[Finding], small: tuple[Smallest, Smallest] | None
) -> Verdict:
    """Return what is said of both."""
    first, second = both
    passed = not found
    shared = passed and first.verdict.mistakes == second.verdict.mistakes and not first.verdict.passed
    remark = f"; both compute {first.verdict.computes}" if shared else ""
    said = ". ".join(cause.sentence() for cause in found) if found else f"They agree on all that both were asked{remark}"
    names = dict.fromkeys(name for side in both if not side.verdict.passed for name in side.verdict.mistakes)
    sides = tuple(
        Side(side.name, side.verdict.passed, side.verdict.computes, side.verdict.mistakes, side.verdict.right_under, one)
        for side, one in zip(both, small or (None, None), strict=True)
    )
    return Verdict(
        first.name, passed, tuple(names) if not passed else (), said, tuple(findings), request.words,
        against=second.name, sides=sides,
    )  # fmt: skip


def by_definition(both: Both, request: Request) -> Verdict:
    """Compare two that cannot be asked the same, each by its own answers beside the definition."""
    first, second = ({one.rung: one for one in side.verdict.findings} for side in both)
    why = "their matrices cannot be exchanged" if both[0].called.offer.core == both[1].called.offer.core else \
        "one takes q, k, v and the other x"
    findings = [Finding("the same input", ABSENT, f"{why}: each is held against the definition with its own input")]
    for rung in first:
        states = (first[rung].state, second[rung].state) if rung in second else ()
        if states in ((HELD, HELD), (BROKEN, BROKEN)):
            findings.append(Finding(rung, HELD, "" if states[0] == HELD else "neither follows the definition"))
        elif set(states) == {HELD, BROKEN}:
            findings.append(Finding(rung, BROKEN, f"{both[states.index(BROKEN)].name} does not follow the definition"))
    sides = [side.verdict for side in both]
    found = by_themselves(both, request)
    wrong = [side for side in both if not (side.verdict.passed or side.verdict.right_under)]
    if wrong and (len(wrong) == 1 or sides[0].mistakes != sides[1].mistakes or not sides[0].mistakes):
        said = [f"{side.name} computes {side.verdict.computes}" if side in wrong else f"{side.name} follows the definition" for side in both]
        found.append(Cause((), "; ".join(said), (), known=True))
    return verdict_of(both, request, found, findings, None)


# The smallest input on which they differ


def smallest_of_both(both: Both, parted: Sequence[Pair], digits: int) -> tuple[Smallest, Smallest] | None:
    """Return the smallest input on which two functions differ, as lines to paste for either; None of modules."""
    first, second = both
    if first.function is None or first.function.inside is not None:
        return None
    case = parted[0].case
    for count, small in enumerate(small_cases(case, first.called)):
        if count > MOST_CALLS:
            break
        answers = (first.called(small), second.called(small))
        if None not in (answers[0].output, answers[1].output) and not same_answer(*answers, small, min(digits, 20)):
            return (
                as_python(first.own, first.called, small, answers[0]),
                as_python(second.own, second.called, small, answers[1]),
            )
    return None


def small_cases(case: Case, caller: Caller) -> Iterator[Case]:
    """Yield small cases of the same kind, also such with rows without keys where the case has them."""
    if case.rung == EMPTY_ROWS:
        small = small_case(case, (1, 1, 2, 2, 1), caller.request, 1)
        yield masked(small, np.array([[True, True], [False, False]]))
    yield from smaller(case, caller)
