"""Whose tokens a run shows: those of its queries, and those of its keys where they are others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attn_exp.problem.past import many
from attn_exp.problem.problem import Problem
from attn_exp.report import words
from attn_exp.report.plain import label


def whose_tokens(problem: Problem) -> str:
    """Say whose tokens ask and whose are looked at; nothing where they are the same."""
    queries, keys = len(problem.tokens), problem.keys
    if problem.memory is not None:
        return words.QUERIES_FROM_X.format(queries=many(queries, words.TOKEN), keys=many(keys, words.TOKEN))
    if problem.past:
        last = (words.LAST_HAS_A_QUERY if queries == 1 else words.LAST_HAVE_QUERIES).format(queries=queries)
        text = words.ONE_IS_PAST if problem.past == 1 else words.SOME_ARE_PAST
        return text.format(past=problem.past, keys=keys, last=last)
    return ""


def title(problem: Problem) -> str:
    """Return the heading of a report without one of its own."""
    tokens = many(len(problem.tokens), words.TOKEN)
    if problem.memory is not None:
        return words.OVER_A_MEMORY.format(tokens=tokens, keys=problem.keys)
    return (words.AFTER_PAST if problem.past else words.OVER_TOKENS).format(tokens=tokens, past=problem.past)


def axis(problem: Problem) -> str:
    """Return what the columns of a map are."""
    if problem.memory is not None:
        return words.KEY_OF_MEMORY
    if problem.past == 1:
        return words.KEY_ONE_PAST
    return (words.KEY_SOME_PAST if problem.past else words.KEY).format(past=problem.past)


def labels(problem: Problem) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return labels of the queries' tokens and of the keys', a token that is both with one label."""
    keys = distinct(problem.key_tokens)
    if problem.tokens == problem.key_tokens:
        return keys, keys
    return keys[problem.past :] if problem.past else distinct(problem.tokens), keys


def distinct(tokens: Sequence[str]) -> tuple[str, ...]:
    """Return labels that tell equal tokens apart by their place."""
    names = [label(token, 24) for token in tokens]
    often = Counter(names)
    return tuple(f"{name}#{place + 1}" if often[name] > 1 else name for place, name in enumerate(names))
