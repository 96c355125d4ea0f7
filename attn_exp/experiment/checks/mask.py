"""Describe the mask of every variant: its blocks, its density, and the keys that each query sees."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem
from attn_exp.rules.rules import allowed_entries

FULL, PARTIAL, EMPTY = "█", "▒", "·"
WIDEST = 48
"""Maximum number of blocks in a row."""


@dataclass(frozen=True)
class Record:
    """One row of blocks of a variant's mask.

    `size`: the number of queries, and of keys, in a block; if it is 1, a row is a single query.
    `blocks`: one character per block: full (█), partial (▒) or empty (·).
    `density`: the share of query-key pairs in the row that the mask allows.
    `sees`: which keys the queries of the row see, in words.
    """

    variant: str
    size: int
    blocks: str
    density: float
    sees: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Yield one record for each row of blocks of each variant's mask, or of each head's mask if these differ."""
    tokens = problem.tokens
    for settled in variants:
        heads = allowed_entries(settled.rules.masks, len(tokens), problem.keys, int(settled.rules.offset), settled.head)
        alike = (heads == heads[:1]).all()
        for head, allowed in enumerate(heads[:1] if alike else heads):
            name = settled.name if alike else f"{settled.name} {head + 1}"
            size = 1 << int((max(allowed.shape) - 1) // WIDEST).bit_length()  # the smallest power of two that fits
            for row, blocks in enumerate(draw_blocks(allowed, size)):
                block_rows = allowed[row * size : (row + 1) * size]
                row_tokens = tokens[row * size : (row + 1) * size]
                query = f"{row_tokens[0]} sees" if size == 1 else f"{row_tokens[0]}..{row_tokens[-1]} see"
                seen = describe_keys(np.asarray(block_rows.any(axis=0)), problem.key_tokens)
                yield Record(
                    name, size, blocks, float(block_rows.mean()) if block_rows.size else 0.0, f"{query} {seen}"
                )


def draw_blocks(allowed: Array, size: int) -> list[str]:
    """Draw a mask `[t s]`, with one line per row of `size x size` blocks."""
    rows = (allowed[row : row + size] for row in range(0, allowed.shape[0], size))
    blocks = ([row[:, key : key + size] for key in range(0, allowed.shape[1], size)] for row in rows)
    return ["".join(FULL if block.all() else PARTIAL if block.any() else EMPTY for block in row) for row in blocks]


def describe_keys(seen: Array, names: Sequence[str]) -> str:
    """Name the keys that are True in `seen` `[s]`: `she, likes`, `k0..k4 and k7`, or `every key`."""
    if seen.all():
        return "every key"
    runs = np.flatnonzero(np.diff(seen, prepend=False, append=False)).reshape(-1, 2)
    if not len(runs):
        return "no key"
    ranges = [
        ", ".join(names[start:stop]) if stop - start < 3 else f"{names[start]}..{names[stop - 1]}"
        for start, stop in runs
    ]
    shown = ranges if len(ranges) <= 5 else [*ranges[:4], f"{len(ranges) - 4} more runs"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def sentence(records: Sequence[Record]) -> str:
    lines = []
    for name, variant_records in itertools.groupby(records, attrgetter("variant")):
        rows = list(variant_records)
        kinds = "".join(record.blocks for record in rows)
        counts = f"{kinds.count(FULL)} full, {kinds.count(PARTIAL)} partial and {kinds.count(EMPTY)} empty blocks"
        size = f" of {rows[0].size} x {rows[0].size}" if rows[0].size > 1 else ""
        lines.append(f"{name}: {counts}{size}, {sum(record.density for record in rows) / len(rows):.0%} open")
    return f"{'. '.join(lines)}."


CHECK = Check(
    record=Record,
    columns=("variant", "blocks", "density", "sees"),
    examine=examine,
    sentence=sentence,
)
