"""A function that is wrong in one way where it is given a word, such as a mask or a scale, and in another where not.

Each word may have a branch of its code: questions with the same words are explained together, those with others apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from attn_exp.diagnosis.asking.case import Answer, Case, expected, predicted
from attn_exp.diagnosis.asking.questions import CROSS, SHARED
from attn_exp.diagnosis.explaining.answers import LARGE, OVERFLOWS, Answers, without_nan
from attn_exp.diagnosis.finding.ways_to_call import failing
from attn_exp.diagnosis.inside.inside_functions import NOTHING, Search, factor_between
from attn_exp.diagnosis.recipes.candidates import Candidate, Explained, best, is_right, rank
from attn_exp.diagnosis.recipes.several import LARGE_FILL, of_masks, together
from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes import mistake

Words = frozenset[str]
Pairs = Sequence[tuple[Case, Answer]]
FEW = 3
"""So many explanations of what is asked without words are held against what is asked with some."""
TELLING = ("values", "unequal lengths", "another length", "another head size", "few queries, many keys")
"""Questions that part stages best, before those with words: in others, numbers are few, alike, or far apart."""
ALIKE = ("large inputs", "equal inputs", "tiny inputs", "whole numbers", "one token", "hidden keys far ahead")
"""Questions whose numbers are few, or alike: they tell no stages apart."""


def seen_inside(evidence: Answers) -> Explained | None:
    """Return the mistakes that are seen inside a call, maybe others with each of the words that a function has.

    Two that give the same are likelier than more.
    """
    found = in_branches(evidence)
    if found is None or len(found.names) <= len("qk"):
        return found
    return best(evidence.pairs_that_fit()) or found


def overflow_besides(evidence: Answers) -> Explained | None:
    """Return the mistakes that explain all but questions with large logits, where one of these overflows."""
    large = [answer.output for case, answer in evidence.seen if case.rung == LARGE]
    if all(output is None or np.isfinite(output).all() for output in large):
        return None
    small = evidence.without_large()  # large logits of hidden keys may stand in other questions too
    rest = replace(small, seen=without_nan(small.seen), ask=lambda: without_nan(small.fresh))
    if is_right(rest.seen, rest.digits):
        return None
    found = best(rest.single_that_fit())
    if found is None and evidence.is_whole:
        found = seen_inside(rest) or best(rest.pairs_that_fit()) or rest.several_mistakes()
    return None if found is None else evidence.likelier(found)


def overflow_seen(evidence: Answers) -> Explained | None:
    """Return that large logits overflow where that is seen: whatever is subtracted from them, it is not the largest.

    All else is right, and so are the scores of large logits.
    """
    for case, answer in evidence.wrong:
        inside = evidence.watch(case) if case.rung == LARGE else None
        if inside is None or inside.scores is None or answer.output is None or np.isfinite(answer.output).all():
            return None
        if inside.largest_power < np.log(np.finfo(np.float32).max):
            return None
        if factor_between(inside.scores, expected(case)["scores"]) is None:
            return None
    return Explained(OVERFLOWS) if evidence.wrong else None


def in_branches(evidence: Answers) -> Explained | None:
    """Return what explains a function's answers where it is given some words, each of them for itself; None where some
    of it is open."""
    usual = next((case for case, _ in evidence.seen if case.rung == "values"), evidence.seen[0][0])
    parted, of_fresh = by_words(evidence.seen, usual), by_words(evidence.fresh, usual)
    chosen, first = dict[Words, Candidate](), list[Candidate]()
    for words in sorted(parted, key=len):
        fresh = of_fresh.get(words, [])
        names = known(chosen.values())
        wrong = failing(parted[words], evidence.digits)
        if not wrong and not failing(fresh, evidence.digits):
            chosen[words] = NOTHING
            continue
        rest = [pair for pair in parted[words] if pair not in wrong]
        view = evidence.of_part([*wrong, *rest], fresh)
        found = likeliest(of_one_branch(view, wrong, first, evidence.single), names)
        if not found and has_parts(words, chosen):
            continue  # two words beside each other may do what neither does alone
        if not found:
            return None
        first = first or found[:FEW]
        chosen[words] = found[0]

    def change(case: Case) -> Recipe:
        return chosen.get(words_of(case, usual), chosen.get(frozenset(), NOTHING)).change(case)

    made = Candidate(tuple(sorted(known(chosen.values()))), change)
    if not made.names or evidence.gives_of(made, evidence.fresh_right) < 0:
        return None
    said = next((one.said for one in chosen.values() if one.said), "")
    return Explained(made.names, change=change, said=said)


def telling(wrong: Pairs) -> Pairs:
    """Return the questions that tell stages apart, those first that do it best."""
    asked = [pair for pair in wrong if pair[0].rung not in ALIKE]
    return sorted(asked, key=lambda pair: pair[0].rung not in TELLING)


def with_left_out(evidence: Answers, found: Explained, ask: Callable[[], Iterable[tuple[Case, Answer]]]) -> Explained:
    """Return an explanation with the mistakes that explain what is left out of the evidence, beside those found.

    Nobody promised to take another input, or fewer key/value heads than heads: what no one mistake explains there says
    nothing.
    """
    names, base = found.names, found.change
    if base is None or not names:
        return found
    left = list(ask())
    for rung, group in LEFT_OUT.items():
        asked = [pair for pair in left if pair[0].rung == rung and predicted(base(pair[0]), pair[0].given) is not None]
        if not failing([(case.asking(base(case)), answer) for case, answer in asked], evidence.digits):
            continue
        view, first = evidence.of_part(asked, []), Candidate(names, base)
        of_group = (one for one in view.single if mistake(one.names[0]).group == group)
        one = next((one for one in of_group if view.gives(together((first, one)))), None)
        names = names if one is None else tuple(sorted({*names, *one.names}))
    return replace(found, names=names)


LEFT_OUT = {CROSS: "products", SHARED: "heads"}
"""Kinds of questions that are left out beside others, and the group of the mistakes that show in these alone."""


def has_parts(words: Words, chosen: Mapping[Words, Candidate]) -> bool:
    """Say whether each of several words has an explanation by itself, and some are mistakes."""
    parts = [chosen.get(frozenset({word})) for word in words]
    return len(parts) > 1 and None not in parts and any(one is not None and one.names for one in parts)


def of_one_branch(
    view: Answers, wrong: Pairs, first: Sequence[Candidate], single: Sequence[Candidate]
) -> list[Candidate]:  # fmt: skip
    """Return what explains questions with the same words: what explains those without comes `first`, maybe beside a
    mistake of masks; then one mistake, then what is seen inside of `single` ones."""
    if view.says_little:
        return []
    found = [one for one in first if view.gives(one)] or view.single_that_fit()
    for others in ([LARGE_FILL], of_masks(view.single)) if first else ():
        found = found or [one for base in first for late in others if view.gives(one := together((base, late)))]
    asked = telling(wrong)
    inside = view.watch(asked[0][0]) if asked and not found else None
    if inside is None:
        return found
    return [one for one in Search(single, *asked[0], inside).explanations(*first) if view.gives(one)]


def likeliest(several: Sequence[Candidate], names: set[str]) -> list[Candidate]:
    """Return candidates, those first that add the fewest names to some."""
    return sorted(several, key=lambda one: (len(names | {*one.names}), rank(one)))


def by_words(seen: Pairs, usual: Case) -> dict[Words, list[tuple[Case, Answer]]]:
    """Return questions with their answers, those with the same words together."""
    parted = dict[Words, list[tuple[Case, Answer]]]()
    for case, answer in seen:
        parted.setdefault(words_of(case, usual), []).append((case, answer))
    return parted


def words_of(case: Case, usual: Case) -> Words:
    """Return what a question asks for beside the usual one: masks and other rules, a scale, fewer key/value heads."""
    rules, others = case.recipe.rules, usual.recipe.rules
    more = [rule for rule in (*rules.masks, *rules.scores) if rule not in (*others.masks, *others.scores)]
    scaled = case.explicit_scale and not usual.explicit_scale
    shared = case.recipe.groups != case.recipe.heads and usual.recipe.groups == usual.recipe.heads
    words = [*(type(rule).__name__ for rule in more), "scale" * scaled, "shared" * shared]
    return frozenset(filter(None, words))


def known(several: Iterable[Candidate]) -> set[str]:
    """Return the names of several candidates."""
    return {name for one in several for name in one.names}
