"""Which matrix is which in a layer that mixes tokens with heads: what can be, as long as one token says the rest.

A view in place of a transpose makes an answer of several tokens say nothing of one of them, so that `roles.py` finds
no order, or a wrong one. Of one token nothing can be mixed: which columns make values, in which order, and what W_o is,
is known all the same. Queries and keys are then the other columns, in one of the few orders in which people store them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from attn_exp.diagnosis.roles import Context, Layer, NotFoundError, Place, Probe, Roles, Search, restored
from attn_exp.diagnosis.ways_into_layers import Way

ORDERS = ((-2, -1), (-1, -2), (1, 2), (2, 1), (-1, 1), (1, -1))
"""Where queries and keys lie beside the values of their head, in steps."""


def arrangements(
    layer: Layer, probe: Probe, way: Way, hint: Callable[[str], str], memory: bool, heads: int
) -> list[Roles]:
    """Return the roles that a layer's parameters may have with so many heads, the likeliest first; maybe none."""
    with restored(layer) as before:
        search = Search(layer, probe, way.width, hint, memory, before, way.tokens)
        try:
            context = search.context(gates=False)
            sources = context.sources()
        except NotFoundError:
            return []
        count = len(sources)
        if count % heads or len(set(sources)) != count:
            return []
        size = count // heads
        of_heads = [list(range(start, start + size)) for start in range(0, count, size)]
        return [
            search.in_order(context, sources, of_heads, columns, heads, sure=False)
            for columns in queries_and_keys(context, sources, hint, size)
        ]


def queries_and_keys(
    context: Context, sources: list[Place], hint: Callable[[str], str], size: int
) -> Iterator[tuple[list[Place], list[Place]]]:
    """Yield the columns that may be queries and keys, as many as there are values."""
    search, count = context.search, len(sources)
    width = {name: search.now[name].size // search.width for name in context.fed}
    others = {name: [(name, column) for column in range(width[name]) if (name, column) not in sources]
              for name in context.fed}  # fmt: skip
    rest = {name: places for name, places in others.items() if places}
    whole = list(rest.values())
    if len(whole) == 2 and all(len(places) == count for places in whole):
        said = [hint(name) for name in rest]
        yield from (tuple(whole[::step]) for step in ((-1, 1) if said == ["k", "q"] else (1, -1)))  # type: ignore[misc]
    elif len(whole) == 1 and len(whole[0]) == 2 * count:
        yield from beside_values(whole[0], sources, size)
    elif len(whole) > 2 and sum(map(len, whole)) == 2 * count:
        yield from of_many(rest, hint)


def of_many(rest: dict[str, list[Place]], hint: Callable[[str], str]) -> Iterator[tuple[list[Place], list[Place]]]:
    """Yield the columns of many matrices that may be queries and keys: as names say, by halves, or in turns."""
    whole, half = list(rest.values()), len(rest) // 2
    said = [[places for name, places in rest.items() if hint(name) == side] for side in "qk"]
    for one, other in (said, (whole[:half], whole[half:]), (whole[::2], whole[1::2])):
        q, k = ([place for places in every for place in places] for every in (one, other))
        if len(q) == len(k):
            yield q, k


def beside_values(places: list[Place], values: list[Place], size: int) -> Iterator[tuple[list[Place], list[Place]]]:
    """Yield the columns of one matrix that may be queries and keys: by halves, or each so far from its value."""
    count, known = len(values), set(places)
    if {name for name, _ in values} != {places[0][0]}:
        in_turns = np.array(range(2 * count)).reshape(-1, 2, size)
        for parts in ((places[:count], places[count:]), *(
            [[places[one] for one in in_turns[:, side].ravel()] for side in range(2)],
        )):  # fmt: skip
            yield parts[0], parts[1]
            yield parts[1], parts[0]
        return
    for step in (count, size, 1):
        for order in ORDERS:
            q, k = ([(name, column + far * step) for name, column in values] for far in order)
            if set(q) | set(k) == known:
                yield q, k
