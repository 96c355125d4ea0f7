"""What queries, keys and values inside a layer are made of, by numbers alone: tokens, heads, channels and places."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import prod

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.code.watching import Operation
from attn_exp.diagnosis.inside.cores import (
    CLOSE,
    Core,
    Seen,
    behind,
)
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, Finding

NEIGHBOURS = ("convolution", "roll", "avg_pool1d", "avg_pool2d", "max_pool2d_with_indices", "_fft_r2c", "cumsum", "pad",
              "upsample_bilinear2d", "upsample_nearest2d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d",
              "mkldnn_rnn_layer", "lstm", "gru")  # fmt: skip
"""Operations in which tokens meet on purpose."""

OF_TOKENS_INSIDE = "the tokens inside"


def of_tokens(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether each row of q, k and v is made of one token, as far as no neighbours are joined on purpose."""
    rung = OF_TOKENS_INSIDE
    if are_joined(seen.operations) and are_keys_apart(seen):
        yield Finding("the keys inside", BROKEN, "the key and the value of one place are made of different tokens"), ""
        return
    if are_joined(seen.operations):
        viewed = side_that_is_viewed(seen)
        if viewed:
            said = (
                f"rows of {viewed} are made of parts of several tokens, and are those of the others where its axes turn"
            )
            yield Finding(rung, BROKEN, said), VIEWED[viewed]
        else:
            yield Finding(rung, ABSENT, "neighbours are joined, so that rows are made of several"), ""
        return
    if not has_rows(seen):
        yield of_keys_alone(seen, rung)
        return
    told, normed = rows_of_tokens(seen, with_token_changed)
    if normed:
        told, normed = rows_of_tokens(seen, with_tokens_exchanged)
    if normed and are_tokens_cut(seen):
        yield Finding(rung, BROKEN, "each row of q, k and v is made of some numbers of several tokens"), TOKENS_CUT
    elif normed:
        yield Finding(rung, ABSENT, "each token changes all rows, as one changes a norm over all tokens"), ""
    else:
        yield from told


def are_keys_apart(seen: Seen) -> bool:
    """Say whether a first token is in some keys and in some values, and in none of one place, as after a roll."""
    pairs = itertools.chain.from_iterable(
        zip(seen.first, with_token_changed(seen, place, 0), strict=False) for place in (0, 1)
    )
    moved = [(changed(one.k, other.k), changed(one.v, other.v)) for one, other in pairs
             if one.at == other.at and one.k.shape[:2] == one.v.shape[:2]]  # fmt: skip
    return any(k.any() and v.any() and not (k & v).any() for k, v in moved)


VIEWED = {"k": "keys_viewed", "v": "values_viewed"}
"""What it is called where a side alone is read as [d, s] without a transpose."""


def side_that_is_viewed(seen: Seen) -> str:
    """Return the side whose rows a token changes as it does those of both others once its axes are exchanged, or "".

    Neighbours may be joined in all three: they are alike in the others then.
    """
    again = with_token_changed(seen, 0, 0)
    if [one.at for one in again] != [one.at for one in seen.first]:
        return ""
    for side, others in (("k", "qv"), ("v", "qk")):
        pairs = [[(getattr(core, each), getattr(after, each)) for each in (side, *others)]
                 for core, after in zip(seen.first, again, strict=True)]  # fmt: skip
        if all(is_viewed(*three) for three in pairs):
            return side
    return ""


def is_viewed(mine: tuple[Array, Array], *others: tuple[Array, Array]) -> bool:
    """Say whether rows `[n s d]` in two calls are changed as others are where they are read as `[n d s]` alone."""
    rows = [changed(one, other) for one, other in others]
    if mine[0].shape != mine[1].shape or not rows[0].any() or not np.array_equal(rows[0], rows[1]):
        return False
    count, length, size = mine[0].shape
    turned = changed(*(one.reshape(count, size, length).swapaxes(1, 2) for one in mine))
    return np.array_equal(turned, rows[0]) and not np.array_equal(changed(*mine), rows[0])


def rows_of_tokens(
    seen: Seen, change: Callable[[Seen, int, int], list[Core]]
) -> tuple[list[tuple[Finding, str]], bool]:  # fmt: skip
    """Return what is to be said of the rows of q, k and v by a change of tokens, and whether it changes all of them."""
    rung, every = OF_TOKENS_INSIDE, list[tuple[str, Array]]()
    lost, normed, alone, tokens = set[str](), False, set[str](), seen.x.shape[1]
    for place in (0, 1):
        again, of_other = (change(seen, place, entry) for entry in (0, 1))
        if any([one.at for one in asked] != [one.at for one in seen.first] for asked in (again, of_other)):
            return [], False
        others = of_no_tokens(seen, rung, list(zip(seen.first, again, of_other, strict=True)))
        if others is not None:
            return [others], False
        pairs = [
            (side, changed(getattr(one, side), getattr(other, side)))
            for one, other in zip(seen.first, again, strict=True)
            if not follows_another(seen, one)
            for side in "qkv"
            if side == "q" or tokens <= one.k.shape[1] <= 2 * tokens
        ]  # fmt: skip - other keys are sums of many
        every += pairs
        lost |= {side for side, touched in pairs if is_mixed(touched, tokens)}
        alone |= set(filter(None, map(side_of_other_tokens, pairs, pairs[1:], pairs[2:])))
        normed |= any(touched.any() for _, touched in pairs) and all(
            (touched.all(axis=1) | ~touched.any(axis=1)).all() for _, touched in pairs
        )
    if normed:
        return [], True
    if not lost and seen.is_image and are_parts_mixed(seen):
        return [
            (Finding(rung, BROKEN, "each row of q, k and v is made of some numbers of several tokens"), TOKENS_CUT)
        ], False
    if not lost:
        return [(Finding(rung, HELD, "each row of q, k and v is made of one token"), "")], False
    told = [of_lost_rows(seen, sorted(lost), every)]
    if len(lost) == len("qkv") and "k" in alone:
        said = "their rows are made of other tokens than those of values"
        told.append((Finding("the keys inside", BROKEN, said), "keys_viewed"))
    elif len(lost) == len("qkv") and "v" in alone:
        said = "their rows are made of other tokens than those of keys"
        told.append((Finding("the values inside", BROKEN, said), ""))
    return told, False


def side_of_other_tokens(*three: tuple[str, Array]) -> str:
    """Return whether it is the keys or the values whose rows are made of other tokens, of what is changed of q, k, v.

    Where queries are moved as keys are, it is the values.
    """
    if "".join(side for side, _ in three) != "qkv":
        return ""
    q, k, v = (touched for _, touched in three)
    if k.shape != v.shape or np.array_equal(k, v):
        return ""
    return "v" if q.any() and np.array_equal(q, k) else "k"


def of_keys_alone(seen: Seen, rung: str) -> tuple[Finding, str]:
    """Say whether keys and values are cut with a view alone, where the answer has no row for each token of x."""
    again, tokens = with_token_changed(seen, 0, 0), seen.x.shape[1]
    if [one.at for one in again] == [one.at for one in seen.first]:
        cores = [pair for pair in zip(seen.first, again, strict=True) if pair[0].k.shape[1] == tokens]
        pairs = [(side, changed(getattr(one, side), getattr(other, side))) for one, other in cores for side in "kv"]
        if are_cut_as_they_lie(seen, "kv", pairs):
            said = "rows of k, v are made of parts of several tokens"
            return Finding(rung, BROKEN, said), "heads_not_transposed"
    return Finding(rung, ABSENT, "its answer has no row for each token"), ""


def are_cut_as_they_lie(seen: Seen, sides: Iterable[str], pairs: Sequence[tuple[str, Array]]) -> bool:
    """Say whether a view alone cuts some sides in heads: a first token lies in the first rows of the first head then.

    `pairs` are the sides with the rows that another first token of the first entry changes.
    """
    rows = [touched for side, touched in pairs if side in sides and touched.any()]
    one_by_one = seen.told if len(seen.first) == seen.told else 1  # a softmax for each head
    heads = [len(touched) * one_by_one // len(seen.x) for touched in rows]
    return bool(rows) and all(
        count > 1 and touched.ravel()[:count].all() and not touched.ravel()[count:].any()
        for count, touched in zip(heads, rows, strict=True)
    )


def of_lost_rows(seen: Seen, sides: Sequence[str], pairs: Sequence[tuple[str, Array]]) -> tuple[Finding, str]:
    """Say what is wrong with sides whose rows are made of several tokens, and its name; `pairs` are all sides."""
    rung = OF_TOKENS_INSIDE
    normed = [side for side in sides if all(is_normed_over_tokens(getattr(one, side)) for one in seen.first)]
    if normed:
        said = f"each number of {' and '.join(normed)} is normed over all tokens, not those of a token"
        return Finding(OF_LENGTHS, BROKEN, said), ""
    finding = Finding(rung, BROKEN, f"rows of {', '.join(sides)} are made of parts of several tokens")
    if are_cut_as_they_lie(seen, sides, pairs):
        return finding, OF_HEADS
    if len(sides) < len("qkv"):
        return finding, VIEWED.get("".join(sides), "") if are_changed_in_part(seen, sides[0]) else ""
    if are_alike_in_heads(seen, pairs) or are_tokens_cut(seen) or are_parts_mixed(seen):
        return finding, TOKENS_CUT
    return finding, OF_HEADS if are_a_row_of_each_head(seen, pairs) else ""


OF_HEADS = "heads_not_transposed"


def are_changed_in_part(seen: Seen, side: str) -> bool:
    """Say whether a token changes some numbers of a row alone, as it does where a view exchanges axes."""
    for change in (with_token_changed, with_tokens_exchanged):
        for one, other in itertools.chain.from_iterable(
            zip(seen.first, change(seen, place, 0), strict=False) for place in (0, 1)
        ):
            rows, others = getattr(one, side), getattr(other, side)
            moved = np.abs(rows - others) > CLOSE * np.abs(rows).max() if rows.shape == others.shape else np.zeros(1)
            if (moved.any(axis=-1) & ~moved.all(axis=-1)).any():
                return True
    return False


def are_a_row_of_each_head(seen: Seen, pairs: Sequence[tuple[str, Array]]) -> bool:
    """Say whether each token that is changed reaches as many rows of a side as there are heads, wherever these lie.

    Another side may be wrong besides.
    """
    rows = [touched for _, touched in pairs if touched.any()]
    heads = [len(touched) * touched.shape[1] // seen.x[..., 0].size for touched in rows]
    return any(touched.sum() in (count, 2 * count) for touched, count in zip(rows, heads, strict=True))


TOKENS_CUT = "tokens_not_transposed"


def are_tokens_cut(seen: Seen) -> bool:
    """Say whether the numbers of one token reach other rows of q, k and v each, whichever head these are of.

    Two tokens exchange one number at a time, which leaves a norm over all tokens as it is. What cuts heads with a view
    alone projects whole tokens before, so that each of their numbers reaches the same rows.
    """
    found = set[tuple[bytes, ...]]()
    for at in dict.fromkeys(np.linspace(0, seen.width - 1, SOME_NUMBERS).astype(int)):
        given = [seen.x.copy(), seen.memory.copy()]
        for rows in given:
            rows[0, [0, -1], at] = rows[0, [-1, 0], at]
        again = seen.cores_of(*given)
        if [one.at for one in again] != [one.at for one in seen.first]:
            return False
        pairs = zip(seen.first, again, strict=True)
        moved = [changed(getattr(one, side), getattr(other, side)) for one, other in pairs for side in "qkv"]
        if not any(map(np.any, moved)) or any(map(np.all, moved)):
            return False
        found.add(tuple(touched.any(axis=0).tobytes() for touched in moved))
    return len(found) > 1


def are_parts_mixed(seen: Seen) -> bool:
    """Say whether rows of q, k and v each hold some numbers of one pair of tokens beside some of another.

    The tokens of a pair change places, as before; there are as many rows as tokens, else some may be joined on purpose.
    """
    tokens = seen.x.shape[1]

    def moved(left: int, right: int) -> list[Array] | None:
        given = [seen.x.copy(), seen.memory.copy()]
        for rows in given:
            rows[0, [left, right]] = rows[0, [right, left]]
        again = seen.cores_of(*given)
        if [one.at for one in again] != [one.at for one in seen.first]:
            return None
        sides = [(getattr(one, side), getattr(other, side)) for one, other in zip(seen.first, again, strict=True)
                 for side in "qkv"]  # fmt: skip
        return [np.abs(one - other) > CLOSE * np.abs(one).max(initial=0.0) for one, other in sides]

    def are_beside(one: Array, other: Array) -> bool:
        both = one.any(axis=-1) & other.any(axis=-1)
        return bool(both.any()) and not (one & other)[both].any()

    if any(prod(side.shape[:2]) % (len(seen.x) * tokens) for one in seen.first for side in (one.q, one.k, one.v)):
        return False
    ends = moved(0, tokens - 1)
    pairs = ((left, left + 1) for left in range(1, tokens - 2))
    return ends is not None and any(
        other is not None and all(map(are_beside, ends, other)) for other in itertools.starmap(moved, pairs)
    )


def are_alike_in_heads(seen: Seen, pairs: Sequence[tuple[str, Array]]) -> bool:
    """Say whether a token reaches the same rows in as many heads as there are, `pairs` being what it changes.

    What cuts heads with a view alone puts all of it into one head.
    """
    rows = [touched[touched.any(axis=1)] for _, touched in pairs if touched.any()]
    counts = [np.unique(touched, axis=0, return_counts=True)[1] for touched in rows]
    return 1 < seen.told <= seen.x.shape[1] and bool(counts) and all((one % seen.told == 0).all() for one in counts)


SOME_NUMBERS = 6
"""Of a token, which are exchanged."""


OF_LENGTHS = "the lengths inside"


def is_normed_over_tokens(rows: Array) -> bool:
    """Say whether rows `[n t d]` have a length of 1 along the tokens, and none for those of one token."""
    lengths = [np.linalg.norm(rows, axis=axis) for axis in (1, 2)]
    return bool(np.allclose(lengths[0], 1.0, atol=CLOSE) and not np.allclose(lengths[1], lengths[1][0, 0]))


def of_no_tokens(
    seen: Seen, rung: str, threes: Sequence[tuple[Core, Core, Core]]
) -> tuple[Finding, str] | None:  # fmt: skip
    """Return what is to be said where rows are those of several entries, or heads; None where they are tokens."""
    if len(threes) == 1 and are_heads_of_tokens(seen, threes[0][0]):
        return Finding(rung, BROKEN, "the heads of one token are the keys of a softmax"), "heads_not_transposed"
    if not seen.speaks_of_channels() and are_within_tokens(seen, threes):
        numbers = all(one.size == 1 for one, _, _ in threes)
        what, where = ("numbers", OF_NUMBERS) if numbers else ("parts", rung)
        return Finding(where, BROKEN, f"the {what} of one token are the keys of a softmax, and no other token's"), ""
    if any(are_together(*three) for three in threes):
        return Finding(rung, BROKEN, "one softmax has keys of several entries of the batch"), "batch_mixed"
    return None


def are_heads_of_tokens(seen: Seen, one: Core) -> bool:
    """Say whether there is a softmax for each token, with as many queries and keys as the layer says it has heads."""
    tokens, several = seen.x.shape[1], seen.told > 1 and seen.told != seen.x.shape[1]
    return several and seen.heads == tokens and one.weights.shape[1:] == (seen.told, seen.told)


OF_NUMBERS = "the numbers inside"


def are_within_tokens(seen: Seen, threes: Sequence[tuple[Core, Core, Core]]) -> bool:
    """Say whether each softmax has queries and keys of one token alone: each one changes all of its own."""
    first = [rows_of_softmaxes(one, other) for one, other, _ in threes]
    if any(moved is None for moved in first) or not any(map(np.any, first)):
        return False
    owners: list[Array] = [np.zeros(len(one.q), int) for one, _, _ in threes]
    for token in range(seen.x.shape[1]):
        again = seen.cores_of(changed_at(seen.x, token), seen.memory)
        if [one.at for one in again] != [one.at for one, _, _ in threes]:
            return False
        moved = [rows_of_softmaxes(one, other) for (one, _, _), other in zip(threes, again, strict=True)]
        if any(one is None for one in moved) or not any(map(np.any, moved)):
            return False
        owners = [count + np.asarray(one) for count, one in zip(owners, moved, strict=True)]
    return all(count.max() <= 1 for count in owners)


def changed_at(x: Array, token: int) -> Array:
    """Return x with another token at a place of its first entry."""
    x = x.copy()
    x[0, token] += np.random.default_rng(71).standard_normal(x.shape[2])
    return x


def rows_of_softmaxes(one: Core, other: Core) -> Array | None:
    """Return which softmaxes have other queries and keys in two calls; None where some of their rows are the same."""
    moved = [changed(getattr(one, side), getattr(other, side)) for side in "qk"]
    whole = [(touched.all(axis=1) == touched.any(axis=1)).all() for touched in moved]
    its_own = np.asarray(moved[0].any(axis=1))
    return its_own if all(whole) and np.array_equal(its_own, moved[1].any(axis=1)) else None


def follows_another(seen: Seen, one: Core) -> bool:
    """Say whether q, k or v are made of what another softmax mixed, and so of several tokens."""
    mixed = {other.at[2] for other in seen.first if other is not one}
    ahead, met = [one.at[0], one.at[2]], set[int]()
    while ahead:
        before = {made for made in seen.operations[ahead.pop()].made if made is not None} - met
        met |= before
        ahead += before
    return bool(mixed & met)


def with_token_changed(seen: Seen, place: int, entry: int) -> list[Core]:
    """Return the cores of a call in which the first token of one entry is another, of x or of the memory."""
    given = [seen.x.copy(), seen.memory.copy()]
    given[place][entry, 0] += np.random.default_rng(71).standard_normal(seen.width)
    return seen.cores_of(*given)


def with_tokens_exchanged(seen: Seen, place: int, entry: int) -> list[Core]:
    """Return the cores of a call in which first and last token of one entry change places: norms over all stay."""
    given = [seen.x.copy(), seen.memory.copy()]
    given[place][entry] = exchanged(given[place][entry], 0)
    return seen.cores_of(*given)


def exchanged(rows: Array, first: int) -> Array:
    """Return rows `[t m]` of which one and the last change places."""
    rows = rows.copy()
    rows[[first, -1]] = rows[[-1, first]]
    return rows


def are_all_changed(touched: Array) -> bool:
    """Say whether another token changes every row `[n t]` of a head or none of it, as it does where all are normed."""
    return bool(touched.any()) and bool((touched.all(axis=1) | ~touched.any(axis=1)).all())


def are_together(one: Core, first: Core, second: Core) -> bool:
    """Say whether tokens of two entries, each changed in a call of its own, are keys of the same softmax."""
    return bool((changed(one.k, first.k).any(axis=1) & changed(one.k, second.k).any(axis=1)).any())


def are_channels(seen: Seen) -> bool:
    """Say whether each row of q, k and v is a channel, with one number of each token, however many there are."""
    if not has_rows(seen) or not have_tokens_in_rows(seen.first, seen.x.shape[1]):
        return False
    with suppress(Exception):  # it may take no other number of tokens
        twice = [np.concatenate([side, side[:, ::-1]], axis=1) for side in (seen.x, seen.memory)]
        longer = seen.cores_of(*twice)
        if not longer or not have_tokens_in_rows(longer, twice[0].shape[1]):
            return False
    if are_joined(seen.operations) or all(one.normed for one in seen.first):  # a norm of a channel is one of all tokens
        return True
    again = with_token_changed(seen, 0, 0)
    if [one.at for one in again] != [one.at for one in seen.first]:
        return False
    moved = [
        changed(getattr(one, side).swapaxes(1, 2), getattr(other, side).swapaxes(1, 2))
        for one, other in zip(seen.first, again, strict=True) for side in "qkv"
    ]  # fmt: skip
    return all(of_side.sum(axis=-1).max() == 1 for of_side in moved)


def have_tokens_in_rows(several: Sequence[Core], tokens: int) -> bool:
    """Say whether each row of all that is multiplied has a number for each token."""
    return all(rows.shape[-1] == tokens for one in several for rows in (one.q, one.k, one.v))


def of_heads(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether there is one head where the layer says that it has several, and which of several share keys."""
    if seen.is_one_for_several:
        said = f"one, of {seen.first[0].size} numbers, and not {seen.told}"
        yield Finding("the heads inside", BROKEN, said), "single_head"
    one, heads = seen.first[0], seen.heads
    if len(seen.first) == seen.told > 1:
        yield from of_heads_in_turn(seen)
    if len(seen.first) > 1 or heads < len("hhh") or len(one.k) != heads * len(seen.x):
        return
    if one.weights.shape[1] != seen.x.shape[1]:  # each query may be an entry of its own, and they share their keys
        return
    whose = [
        next(other for other in range(heads) if np.array_equal(one.k[other], one.k[head])) for head in range(heads)
    ]
    groups = len(set(whose))
    if 1 < groups < heads and whose == [head % groups for head in range(heads)]:
        said = f"of {heads}, each reads the keys of those {groups} behind it too: they are taken in turns"
        yield Finding("the heads inside", BROKEN, said), "kv_heads_tiled"
    elif groups == 1 and is_first_of_several(seen, one):
        yield Finding("the heads inside", BROKEN, f"each of {heads} reads the first of several keys"), "kv_heads_first"


def of_heads_in_turn(seen: Seen) -> Iterator[tuple[Finding, str]]:
    """Say whether heads that are computed one after the other read the keys or the values of one of several."""
    for side, called in (("k", "keys"), ("v", "values")):
        first, *others = (getattr(one, side) for one in seen.first)
        if all(np.array_equal(first, other) for other in others) and is_first_of_several(seen, seen.first[0], side):
            said = f"each of {seen.told} reads the first of several {called}"
            yield Finding("the heads inside", BROKEN, said), "kv_heads_first"
            return


def is_first_of_several(seen: Seen, one: Core, side: str = "k") -> bool:
    """Say whether a matrix that makes keys, or values, and nothing else makes more of them than one head has."""
    mine, *others = (products_behind(seen, one, each) for each in (side, *(each for each in "qkv" if each != side)))
    is_own = bool(mine) and not mine & set().union(*others)
    size = getattr(one, side).shape[-1]
    return is_own and all(seen.operations[place].said.shape[-1] > size for place in mine)


def of_positions(seen: Seen, is_asked: bool = False) -> Iterator[tuple[Finding, str]]:
    """Say of queries and keys that are turned by their place whether the scores of equal tokens tell distances alone.

    Those of an image are the rows and the columns that lie between two points. `is_asked`: somebody wants them turned.
    With equal tokens x, `q_i = A_i x + c_i`: where `A_i` is the same for all i, nothing is turned. Values never are.
    """
    rung = OF_PLACES
    tokens = np.random.default_rng(79).standard_normal((2, seen.width))
    plain, others = (seen.cores_of(x, x) for x in (np.broadcast_to(one, seen.x.shape).copy() for one in tokens))
    if not [one.at for one in plain] == [one.at for one in others] == [one.at for one in seen.first]:
        return
    for one, other in zip(plain, others, strict=True):
        if are_rotated(other.v - one.v) and not is_turned_back(seen, one):
            yield Finding(rung, BROKEN, "values of equal tokens are turned by their places"), "rope_on_values"
        q, k = other.q - one.q, other.k - one.k
        turned = [side for side in (q, k) if not are_alike(side)]
        if is_asked and not turned and are_alike(one.scores):
            yield Finding(rung, BROKEN, "equal tokens make the same queries and keys wherever they stand"), MISSING
            return
        if one.normed or q.shape != k.shape or not turned:
            continue
        scores = q @ k.swapaxes(1, 2)
        if tells_steps_alone(scores, (scores.shape[1],)):
            yield Finding(rung, HELD, "of equal tokens turned by their places, scores tell distances alone"), ""
        elif any(tells_steps_alone(scores[:, first:, first:], grid) for first, grid in grids(scores.shape[1])):
            said = "of equal tokens turned by their places, scores tell how many rows and columns lie between two alone"
            yield Finding(OF_GRID, HELD, said), ""
        else:
            is_alone = len(turned) == 1 and are_rotated(turned[0])
            side = ", of one side alone" if is_alone else ""
            said = f"of equal tokens turned by their places{side}, scores tell more than distances"
            yield Finding(rung, BROKEN, said), MISSING if is_alone else ""
            return


MISSING = "position_missing"


def are_alike(rows: Array) -> bool:
    """Say whether rows `[n t d]` that equal tokens make are the same; those of 0 are made of none, as filler is."""
    made = np.abs(rows).max(axis=-1) > CLOSE
    return all(
        np.allclose(each[of_tokens], each[of_tokens][:1], atol=CLOSE)
        for each, of_tokens in zip(rows, made, strict=True)
    )


OF_PLACES, OF_GRID = "the positions inside", "the positions inside, by rows and columns"


def grids(tokens: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the rows and columns of the images that tokens may be, after none or one that is no point of it."""
    for first in (0, 1):
        of_image = tokens - first
        yield from ((first, (of_image // w, w)) for w in range(2, of_image // 2 + 1) if of_image % w == 0)


def tells_steps_alone(scores: Array, grid: Sequence[int]) -> bool:
    """Say whether scores `[n t s]` of two tokens that lie in a grid are one number for each step between them."""
    places = np.stack(np.unravel_index(np.arange(scores.shape[1]), grid), axis=-1)
    steps = (places[:, None] - places).reshape(-1, len(grid))
    _, which = np.unique(steps, axis=0, return_inverse=True)
    flat, room = scores.reshape(len(scores), -1), 1e-4 * np.abs(scores).max()
    return all(np.ptp(flat[:, which.ravel() == step], axis=1).max() <= room for step in range(which.max() + 1))


def are_rotated(rows: Array) -> bool:
    """Say whether rows `[n t e]` are others for each place, and all of the same length."""
    lengths = np.linalg.norm(rows, axis=-1)
    is_one = np.allclose(lengths, lengths[:, :1], rtol=CLOSE * 10) and lengths.min(initial=np.inf) > CLOSE
    return is_one and not np.allclose(rows, rows[:, :1], atol=1e-3 * lengths.max(initial=0.0))


def is_turned_back(seen: Seen, one: Core) -> bool:
    """Say whether what is mixed is multiplied by numbers of its place before the next product."""
    after = seen.operations[one.at[2] + 1 :]
    between = after[: next((place for place, other in enumerate(after) if other.is_product), len(after))]
    return any(each.name == "mul" and array.size > 1 and not of_x for each in between
               for array, of_x in zip(each.given, each.of_x, strict=True))  # fmt: skip


def are_joined(operations: Sequence[Operation]) -> bool:
    """Say whether tokens meet in an operation on purpose; in a convolution of single points they do not."""
    return any(one.name in NEIGHBOURS and (one.name != "convolution" or prod(one.given[1].shape[2:]) > 1)
               for one in operations)  # fmt: skip


def is_mixed(touched: Array, tokens: int) -> bool:
    """Say whether another token changes rows of one head that lie side by side; an input may come twice.

    Several rows of each token are those of its heads, which read the same keys.
    """
    several = touched.shape[1] // tokens
    of_heads = several > 1 and touched.shape[1] == several * tokens
    layouts = [touched.reshape(len(touched), tokens, several).swapaxes(1, 2).reshape(-1, tokens)] if of_heads else []
    return all(bool((rows[:, 1:] & rows[:, :-1]).any()) for rows in (touched, *layouts))


def changed(rows: Array, others: Array) -> Array:
    """Return which rows `[n t d]` are others, rounding apart; none where the sizes are others."""
    if rows.shape != others.shape:
        return np.zeros(rows.shape[:2], bool)
    other: Array = (np.abs(rows - others) > CLOSE * np.abs(rows).max(initial=0.0)).any(axis=-1)
    return other


def has_rows(seen: Seen) -> bool:
    """Say whether a layer answers with a row for each token: else other rows may stand beside those of x inside."""
    return seen.said.shape[:2] == seen.x.shape[:2]


def products_behind(seen: Seen, one: Core, side: str) -> set[int]:
    """Return the places of the products that the rows of a side come from."""
    at = seen.operations[one.at[2 if side == "v" else 0]]
    rows = np.sort(getattr(one, side), axis=None)
    place = at.made[-2 if np.array_equal(rows, np.sort(at.given[-2], axis=None)) else -1]
    if place is None:
        return set()
    every = [place, *behind(seen.operations, place)] if not seen.operations[place].is_product else [place]
    return {each for each in every if seen.operations[each].is_product}
