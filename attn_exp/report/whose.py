"""Whose tokens a run shows: those of its queries, and those of its keys where they are others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attn_exp.problem.past import many
from attn_exp.problem.problem import Problem
from attn_exp.report.plain import label


def whose_tokens(problem: Problem) -> str:
    """Say whose tokens ask and whose are looked at; nothing where they are the same."""
    queries, keys = len(problem.tokens), problem.keys
    if problem.memory is not None:
        return (
            f"Queries come from x ({many(queries, 'token')}), keys and values from the memory ({many(keys, 'token')})."
        )
    if problem.past:
        first, those = (
            ("first", "it has a key and a value")
            if problem.past == 1
            else (f"first {problem.past}", "they have keys and values")
        )
        last = "the last has a query" if queries == 1 else f"the last {queries} have queries"
        return f"The {first} of {keys} tokens {'is' if problem.past == 1 else 'are'} past: {those}, and only {last}."
    return ""


def title(problem: Problem) -> str:
    """Return the heading of a report without one of its own."""
    tokens = many(len(problem.tokens), "token")
    if problem.memory is not None:
        return f"Attention of {tokens} over a memory of {problem.keys}"
    return f"Attention of {tokens} after {problem.past} past" if problem.past else f"Attention over {tokens}"


def axis(problem: Problem) -> str:
    """Return what the columns of a map are."""
    if problem.memory is not None:
        return "key (memory)"
    if problem.past == 1:
        return "key (the first is past)"
    return f"key (the first {problem.past} are past)" if problem.past else "key"


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
