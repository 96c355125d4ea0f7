"""Masks of a layer that is seen from inside: which keys each word for one hides, as its softmax is given them.

How a mask is written is found by asking: the first way in which the keys that it hides are hidden inside is the one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from time import thread_time

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.masking import ADDED, LOWEST, MASKINGS, PADDINGS, Masking
from attn_exp.diagnosis.asking.offer import is_of_edges
from attn_exp.diagnosis.inside.cores import CLOSE, HIDDEN, Core, Seen, cores, is_multiplied, multiple
from attn_exp.diagnosis.inside.other_words import INVERTED
from attn_exp.diagnosis.inside.weights_inside import are_turned
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, REMARK, Finding
from attn_exp.forms.pipeline import At
from attn_exp.rules.rules import Rules

FILL, AFTER = "mask_small_fill", "mask_after_softmax"
IGNORED, TURNED = "mask_ignored", "mask_transposed"
AS_MEANT = "rows are keys and columns queries, as of edges from one to another"
TILED, FIRST = "mask_tiled_over_heads", "mask_of_first_entry"
MULTIPLIED, SIGN = "mask_multiplied", "mask_sign"
OF_QUERIES = "padding_on_queries"
OTHERS = "other scores"
"""That has no name in the catalogue."""
SAID = {
    INVERTED: "what may attend is hidden",
    IGNORED: "nothing inside changes with it",
    FILL: "the logits of hidden keys are no lower than others, so that they keep weight",
    MULTIPLIED: "the logits of hidden keys are multiplied by 0, so that they keep weight",
    SIGN: "the logits of hidden keys are far above the others",
    AFTER: "it is put on the weights, behind the softmax",
    TURNED: "it is read with queries and keys exchanged",
    TILED: "each of its entries is put on the heads of others too",
    FIRST: "that of the first entry is used for all",
    OF_QUERIES: "it hides the queries of what it says, and no keys",
    OTHERS: "with it, the scores of the keys that it does not hide are others",
}
OF_OTHERS = re.compile("encoder|cross|memory|context")
"""What words are like for masks of other keys than those of x."""
FILLER = 2
"""Tokens at the end that are filler, where a mask is of keys alone."""
MOST_SECONDS = 2.0
"""That ways to write a mask are looked for."""
RANK = ("", INVERTED, TURNED, SIGN, OTHERS, MULTIPLIED, FILL, AFTER)
"""What an answer may show, the plainest first; that nothing changes is told where no way of writing shows more."""


def rung(word: str) -> str:
    """Return the name of what is said of a word for a mask."""
    return f"the mask {word}"


def rungs(seen: Seen) -> set[str]:
    """Return the names of what is said of all its words for masks."""
    return set(map(rung, seen.words))


def of_words(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say of each word for a mask what it does inside, and the name of what is wrong with it."""
    every = {word: shown_in_some_way(seen, word, role) for word, role in seen.words.items()}
    is_masked = any("" in shown for shown in every.values())
    for word, shown in every.items():
        is_of_others = is_masked and OF_OTHERS.search(word)  # of keys that a layer may be given, and is not
        name = next((one for one in RANK if one in shown), IGNORED if IGNORED in shown and not is_of_others else None)
        if name == TURNED and shown[name] in PADDINGS:
            name = OF_QUERIES
        if name is None:
            yield Finding(rung(word), ABSENT, "in no way of writing it does it hide what it says"), ""
        elif name == TURNED and is_of_edges(word):
            yield Finding(rung(word), REMARK, AS_MEANT), ""
        elif name:
            yield Finding(rung(word), BROKEN, SAID[name]), "" if name == OTHERS else name
        of_others = whose_entries(seen, word, shown[name]) if name in ("", INVERTED) else ""
        if of_others:
            yield Finding(f"entries of {rung(word)}", BROKEN, SAID[of_others]), of_others
        elif name == "":
            yield Finding(rung(word), HELD, f"hides what it says ({shown[name]})"), ""


def shown_in_some_way(seen: Seen, word: str, role: str) -> dict[str, Masking]:
    """Return what a mask of that name does, and in which way of writing it first.

    Where a layer puts others before or behind the keys of x, it may want a mask of all of them.
    """
    shown = dict[str, Masking]()
    start = thread_time()
    known = PADDINGS if role == "padding" else (*MASKINGS, *PADDINGS)
    ways = sorted(known, key=lambda way: way.kind != "booleans")
    every = dict.fromkeys((seen.x.shape[1], *(one.logits.shape[2] for one in seen.first)))
    for keys, masking in itertools.product(every, ways):
        if masking.kind != "booleans" and {INVERTED, TURNED, SIGN} & set(shown):
            break  # it answers to booleans, and is judged by them
        with suppress(Exception):  # a layer may take no mask that is written so
            found = shown_by(seen, word, masking, keys=keys)
            is_next_to_nothing = found == "" and FILL in shown  # of -inf, which hides, however little is left of it
            is_of_inf = found == SIGN  # any number below 0 makes inf of -inf, how small it is
            if masking.kind == "added" and (found is None or is_next_to_nothing or is_of_inf):
                found = shown_by(seen, word, masking, ADDED, keys)
            if found is not None:
                shown.setdefault(found, masking)
        if "" in shown or thread_time() - start > MOST_SECONDS:
            break
    return shown


def shown_by(seen: Seen, word: str, masking: Masking, lowest: float = LOWEST, keys: int = 0) -> str | None:
    """Return what a mask that is written in a way does: "" where it hides what it says, or the name of a mistake.

    `lowest` is what is added where one may not attend; `keys` how many it has, or those of x. None where that is none
    of those that are known.
    """
    batch, tokens = seen.x.shape[:2]
    keys = keys or tokens
    allowed = np.random.default_rng(83).random((tokens, keys)) < 0.6
    allowed |= np.eye(tokens, keys, dtype=bool)
    allowed[0] = True  # of one query nothing is hidden: others may be NaN
    filler = min(FILLER, tokens - 1)
    if masking in PADDINGS:
        allowed = np.broadcast_to(np.arange(keys) < keys - filler, (tokens, keys))
    if allowed.all():  # of so few tokens nothing is hidden, and nothing is to be seen
        return None
    at = At(Rules(), batch, max(seen.heads, 1), max(seen.heads, 1), tokens, keys, seen.width, seen.width)
    mask = masking.held(replace(masking, lowest=lowest).write(allowed, at))
    is_turned = are_turned(seen)  # what is read as queries is asked, and what is read as keys asks
    allowed, keys_alone = (allowed.T, False) if is_turned else (allowed, masking in PADDINGS)
    operations, said = seen.ask(seen.x, seen.memory, None, {word: mask})
    again = cores(operations, seen.x.shape[1])
    if len(again) != len(seen.first) or any(
        one.weights.shape != other.weights.shape for one, other in zip(again, seen.first, strict=True)
    ):
        return None
    if np.array_equal(said, seen.said) and all(
        np.array_equal(one.weights, other.weights) for one, other in zip(again, seen.first, strict=True)
    ):
        heads = all(one.weights.shape[1:] == (seen.told, seen.told) and seen.told > 1 for one in again)  # of one token
        return IGNORED if heads or all(one.weights.shape[2] == tokens for one in again) else None  # no other keys
    pairs = list(zip(again, seen.first, strict=True))
    if all(np.allclose(one.weights, other.weights, rtol=0.0, atol=CLOSE) for one, other in pairs):
        is_known = seen.said.dtype == np.float64 and any(parts_keys(*both) for both in pairs)
        return FILL if is_known else None  # something is added, and it is next to nothing
    names = {of_core(one, other, of_rows(allowed, one) if keys_alone else allowed) for one, other in pairs}
    if names == {None} and keys_alone:  # what becomes of the queries of filler is nobody's affair
        kept = [[of_first_rows(one, tokens - filler) for one in both] for both in pairs]
        names = {of_core(one, other, of_rows(allowed, one)) for one, other in kept}
    if names == {FILL} and all(is_multiplied(operations, one, moved_to_zero(one, other)) for one, other in pairs):
        return MULTIPLIED
    is_open = masking.kind == "added" and all(
        one.is_bare for one in again
    )  # without a softmax no sign is the right one
    return names.pop() if len(names) == 1 and not (is_open and names == {SIGN}) else None


def parts_keys(masked: Core, plain: Core) -> bool:
    """Say whether a mask adds other numbers to some keys of a query than to others: one for all of them is no fill."""
    gap = np.where(np.isfinite(masked.logits) & np.isfinite(plain.logits), masked.logits - plain.logits, 0.0)
    return bool(np.ptp(gap, axis=-1).max() > NOTHING)


NOTHING = 1e-13
"""By which logits differ that are summed up in another order."""


def moved_to_zero(masked: Core, plain: Core) -> Array:
    """Return which logits are 0 with a mask, and another number without it."""
    moved: Array = (masked.logits == 0) & (plain.logits != 0)
    return moved


def of_first_rows(one: Core, rows: int) -> Core:
    """Return one softmax of the first queries alone."""
    q, scores, logits, weights = (array[:, :rows] for array in (one.q, one.scores, one.logits, one.weights))
    return replace(one, q=q, scores=scores, logits=logits, weights=weights)


def whose_entries(seen: Seen, word: str, masking: Masking) -> str:
    """Return by which mistake a mask that is another for each entry is put on those of others; "" where it is not."""
    batch, tokens = seen.x.shape[:2]
    if not masking.axes.startswith("b "):
        return ""
    of_keys = masking in PADDINGS
    allowed = np.random.default_rng(89).random((batch, 1, 1 if of_keys else tokens, tokens)) < 0.6
    allowed |= np.eye(1, tokens, dtype=bool) if of_keys else np.eye(tokens, dtype=bool)
    allowed = np.broadcast_to(allowed, (batch, 1, tokens, tokens))
    at = At(Rules(), batch, max(seen.heads, 1), max(seen.heads, 1), tokens, tokens, seen.width, seen.width)
    x, memory = seen.x.copy(), seen.memory.copy()
    x[0] += 1.0
    memory[0] += 1.0
    with suppress(Exception):
        given = {word: masking.held(masking.write(allowed, at))}
        again, others = cores(seen.ask(seen.x, seen.memory, None, given)[0]), cores(seen.ask(x, memory)[0])
        every = list(zip(again, seen.first, others, strict=True))
        for name, turns in ((TILED, np.arange(batch)), (FIRST, np.zeros(batch, int))):
            if every and all(of_turns(*three, allowed[turns, 0]) for three in every):
                return name
    return ""


def of_turns(masked: Core, plain: Core, other: Core, allowed: Array) -> bool:
    """Say whether what a mask hides or leaves `[b t s]` goes by turns, where rows of one entry lie together.

    Those of the first entry are others in `other`. With one head they go by turns where each entry has its own.
    """
    count, batch = len(plain.logits), len(allowed)
    first = (np.abs(other.k - plain.k).max(axis=(1, 2)) > CLOSE).nonzero()[0]
    if masked.logits.shape[1:] != allowed.shape[1:] or not np.array_equal(first, np.arange(count // batch)):
        return False
    hidden, turns = masked.logits <= HIDDEN, allowed[np.arange(count) % batch]
    is_told = len(first) > 1 or np.array_equal(*allowed[:2])
    return is_told and (np.array_equal(hidden, turns) or np.array_equal(hidden, ~turns))


def of_rows(allowed: Array, one: Core) -> Array:
    """Return which keys are no filler, for as many queries as a softmax has rows: a layer may have its own."""
    return np.broadcast_to(allowed[:1], (one.weights.shape[1], allowed.shape[1]))


def of_core(masked: Core, plain: Core, allowed: Array) -> str | None:
    """Return what a mask `[t s]` does to one softmax and what goes around it, beside what is hidden without it."""
    if masked.weights.shape[1:] != allowed.shape:
        return None
    open_before = plain.logits > HIDDEN
    hidden = (masked.logits <= HIDDEN) & open_before
    is_square = allowed.shape[-1] == allowed.shape[-2]  # else some queries are left out
    for name, places in (("", ~allowed), (INVERTED, allowed), *([(TURNED, ~allowed.T)] if is_square else [])):
        if np.array_equal(hidden, places & open_before):
            shown = masked.logits > HIDDEN
            factor, apart = multiple(masked.logits, plain.logits, shown)
            are_alone = shown.sum(axis=-1).max() <= 1  # a key that no other stands beside has no score that tells
            return name if are_alone or (apart < CLOSE * 10 and abs(factor - 1.0) < CLOSE * 10) else OTHERS
    return None if hidden.any() else of_no_hidden_key(masked, plain, allowed, open_before)


def of_no_hidden_key(masked: Core, plain: Core, allowed: Array, open_before: Array) -> str | None:
    """Return what a mask does that hides no key before the softmax: too little, too late, or with the wrong sign.

    Without a softmax 0 hides.
    """
    for places in (~allowed, allowed):  # of a mistake, either may be what the mask means
        closed = places & open_before
        moved = np.abs(added_to(masked, plain, closed)) > CLOSE
        hides_so = masked.is_bare and not masked.weights[closed].any()
        is_late = hides_so if masked.is_bare else not moved.any()
        if closed.any() and is_late and is_put_on_weights(masked, plain, closed):
            return None if hides_so else AFTER
        if not hides_so and (least := least_added(masked, plain, closed)) is not None:
            return SIGN if least > -HIDDEN else FILL
    is_square = allowed.shape[-1] == allowed.shape[-2]
    turned = (~allowed.T, allowed.T) if is_square else ()  # where keys are given first, their axis may be too
    is_sign = any((least_added(masked, plain, places & open_before) or 0.0) > -HIDDEN for places in turned)
    return SIGN if is_sign else None


def added_to(masked: Core, plain: Core, closed: Array) -> Array:
    """Return what a mask adds to the logits, less what it adds to all of a row, which a softmax by hand may show.

    Without a softmax there is nothing that all of a row share.
    """
    gap: Array = masked.logits - plain.logits
    kept = np.where(closed | masked.is_bare, 0.0, gap)
    rest: Array = kept.sum(axis=-1, keepdims=True) / np.maximum((~closed).sum(axis=-1, keepdims=True), 1)
    return gap - rest


def least_added(masked: Core, plain: Core, closed: Array) -> float | None:
    """Return the least of what a mask adds to the logits of some places; None where it adds to others, or to few."""
    added = added_to(masked, plain, closed)
    moved = np.abs(added) > CLOSE
    is_added = closed.any() and not (moved & ~closed).any() and 2 * moved.sum() > closed.sum()
    return float(added[closed & moved].min()) if is_added else None


def is_put_on_weights(masked: Core, plain: Core, closed: Array) -> bool:
    """Say whether weights are one number where a mask hides, as 0 or -inf, and in all other places as without it."""
    numbers = masked.weights[closed]
    if (numbers != numbers[0]).any() or not (plain.weights[closed] != numbers[0]).all():
        return False
    others = masked.weights[~closed]
    if numbers[0] == 0:
        return not np.isnan(others).any()  # what makes NaN of a row did so before
    return np.allclose(others, plain.weights[~closed], atol=CLOSE)
