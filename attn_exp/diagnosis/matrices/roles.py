"""Which parameter of a layer is which: found by what each one does to the answer, not by what it is called.

Every number of a layer can be chosen and its answer read, so nothing has to be guessed:

- What is multiplied by x does not matter where it meets only what x lacks: `x (W + u w^T) = x W` for each u with
  `x u = 0`. That says what takes x, and along which axis.
- Of one token alone all weights are 1: what changes the answer then is a value, and all else that takes x is q or k.
- The same number added to the logits of all keys changes no weight: k moved along u with `x_j u = 1` for all j is k.
- With values `v_j = 1` of one token, and 0 of all others, the numbers before W_o are the weights themselves. Those that
  are alike belong to one head, and which of them a column of W_q or W_k changes says whose it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.clock import EXPLAINING, MAKING, is_over, while_there_is_time
from attn_exp.own_code import error_line

TOKENS = 3
OPEN = 40.0
"""What makes a gate let all through: its sigmoid is 1."""


class Layer(Protocol):
    """Somebody's layer with numbers that can be exchanged.

    `rounding`: of the largest number of an answer; what changes by less does not change.
    """

    rounding: float

    @property
    def parameters(self) -> Mapping[str, Array]:
        """What it holds now, by name."""

    def put(self, values: Mapping[str, Array]) -> None:
        """Write numbers into some of its parameters."""


Place = tuple[str, int]
"""A parameter by name, and one column of its matrix."""
Probe = Callable[..., Array]
"""The answer `[b t m]` of a layer to x, and to a memory where it takes one; norms inside are left out."""


@dataclass(frozen=True)
class Piece:
    """A part of one parameter that is a matrix `[in out]`: its axes in the order in, out, and its columns."""

    name: str
    inputs: tuple[int, ...]
    columns: tuple[int, ...]
    bias: str = ""

    def whole(self, array: Array) -> Array:
        """Return the whole parameter as `[in out]`."""
        return as_matrix(array, self.inputs)

    def read(self, parameters: Mapping[str, Array]) -> Array:
        """Return the matrix."""
        return self.whole(parameters[self.name])[:, list(self.columns)]

    def read_bias(self, parameters: Mapping[str, Array]) -> Array | None:
        """Return the bias of these columns, where there is one."""
        return parameters[self.bias].reshape(-1)[list(self.columns)] if self.bias else None


def as_matrix(array: Array, inputs: Sequence[int]) -> Array:
    """Return an array as a matrix whose rows are these axes and whose columns are all others."""
    others = [axis for axis in range(array.ndim) if axis not in inputs]
    rows = int(np.prod([array.shape[axis] for axis in inputs]))
    return np.transpose(array, (*inputs, *others)).reshape(rows, -1)


def from_matrix(matrix: Array, shape: tuple[int, ...], inputs: Sequence[int]) -> Array:
    """Return what `as_matrix` was made of."""
    order = (*inputs, *(axis for axis in range(len(shape)) if axis not in inputs))
    back = matrix.reshape([shape[axis] for axis in order])
    return np.ascontiguousarray(np.transpose(back, np.argsort(order)))


@dataclass
class Roles:
    """What was found: the pieces of each side in the order of heads, how many heads there are, and what else there is.

    `neutral` are parameters that are no part of attention and the numbers that make them do nothing. `sure` says
    that q and k were told apart by what they do, and `unit` is what the values of one token alone are multiplied by.
    """

    sides: dict[str, list[Piece]]
    heads: int
    groups: int
    rows_of_o: tuple[int, ...] = ()
    loose: dict[str, str] = field(default_factory=dict)
    neutral: dict[str, Array] = field(default_factory=dict)
    sure: bool = True
    unit: float = 1.0

    def arrays(self, parameters: Mapping[str, Array]) -> dict[str, Array]:
        """Return W_q, W_k, W_v, W_o and the biases that there are, as `x W` has them."""
        found: dict[str, Array] = {}
        for side in "qkv":
            pieces = self.sides[side]
            found[f"W_{side}"] = np.concatenate([piece.read(parameters) for piece in pieces], axis=1)
            biases = [piece.read_bias(parameters) for piece in pieces]
            if any(bias is not None for bias in biases):
                sizes = [len(piece.columns) for piece in pieces]
                whole = [np.zeros(n) if b is None else b for n, b in zip(sizes, biases, strict=True)]
                found[f"b_{side}"] = np.concatenate(whole)
        for piece in self.sides.get("o", []):
            found["W_o"] = piece.whole(parameters[piece.name])[list(self.rows_of_o)]
            if piece.bias:
                found["b_o"] = parameters[piece.bias].reshape(-1)
        for role, name in self.loose.items():
            found[role] = parameters[name].reshape(-1)
        return found

    def written(self, parameters: Mapping[str, Array], arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the parameters that hold these matrices and biases, as `arrays` reads them."""
        found = {name: np.array(array) for name, array in parameters.items()}
        for side in "qkv":
            start = 0
            for piece in self.sides[side]:
                columns = slice(start, start + len(piece.columns))
                matrix = piece.whole(found[piece.name]).copy()
                matrix[:, list(piece.columns)] = arrays[f"W_{side}"][:, columns]
                found[piece.name] = from_matrix(matrix, found[piece.name].shape, piece.inputs)
                if piece.bias:
                    bias = found[piece.bias].reshape(-1)
                    bias[list(piece.columns)] = arrays[f"b_{side}"][columns]
                    found[piece.bias] = bias.reshape(found[piece.bias].shape)
                start = columns.stop
        for piece in self.sides.get("o", []):
            matrix = piece.whole(found[piece.name]).copy()
            matrix[list(self.rows_of_o)] = arrays["W_o"]
            found[piece.name] = from_matrix(matrix, found[piece.name].shape, piece.inputs)
            if piece.bias:
                found[piece.bias] = arrays["b_o"].reshape(found[piece.bias].shape)
        for role, name in self.loose.items():
            found[name] = arrays[role].reshape(found[name].shape)
        return found


class NotFoundError(Exception):
    """What a layer computes does not tell its roles; it says why."""


@contextmanager
def restored(layer: Layer) -> Iterator[dict[str, Array]]:
    """Put back all that a layer held; meanwhile its numbers may be exchanged."""
    before = {name: np.array(array) for name, array in layer.parameters.items()}
    try:
        yield before
    finally:
        layer.put(before)


def find(
    layer: Layer, probe: Probe, width: int, hint: Callable[[str], str], memory: bool = False, tokens: int = 0
) -> Roles:  # fmt: skip
    """Return which parameter of a layer is which.

    `width`: numbers of a token of x, of which the layer is given `tokens`, where it takes no other number: several that
    are alike stand for one then. `hint` says which side a name sounds like, which counts only where what the
    parameters do leaves it open. `memory`: it takes keys and values from elsewhere.

    Raises:
        NotFoundError: it has no values or no queries, or what it does is no attention.
    """
    with restored(layer) as before:
        search = Search(layer, probe, width, hint, memory, before, tokens)
        if not search.is_answering():
            raise NotFoundError("no matrix that it holds changes its answer")
        try:
            return search.roles()
        except NotFoundError:
            after = list(reversed(search.rest))  # what comes after attention stands behind it
            for name in while_there_is_time(after, MAKING, "other ways to read its matrices"):
                with suppress(NotFoundError):
                    return Search(layer, probe, width, hint, memory, before, tokens).roles(without=name)
            raise


class Search:
    """The search for one layer's roles, step by step; each step leaves the layer's numbers as it found them."""

    def __init__(
        self, layer: Layer, probe: Probe, width: int, hint: Callable[[str], str], memory: bool,
        before: Mapping[str, Array], tokens: int,
    ) -> None:  # fmt: skip
        self.layer, self.probe, self.width, self.hint, self.memory = layer, probe, width, hint, memory
        self.tokens, self.is_fixed = tokens or TOKENS, tokens > 0
        self.rng = np.random.default_rng(41)
        self.x = self.rng.standard_normal((1, self.tokens, width))
        self.other = self.rng.standard_normal((1, self.tokens, width)) if memory else None
        self.before = before
        self.now: dict[str, Array] = {name: np.array(array) for name, array in before.items()}
        self.known: dict[int, Array] = {}
        self.set_aside: dict[str, Array] = {}
        self.rest: list[str] = []

    def roles(self, without: str = "") -> Roles:
        """Return what was found; `without` a matrix, which is 0 then: that of a layer after attention, say."""
        context = self.context(without)
        sources, fed = context.sources(), context.fed
        heads = context.heads()
        queries, keys, sure = self.queries_and_keys(fed, set(sources))
        if not queries or not keys:
            raise NotFoundError("none of its parameters is a matrix of queries, or none one of keys")
        found = self.put_in_order(context, sources, heads, (queries, keys), sure)
        if self.memory and not self.takes_from_memory(found):
            raise NotFoundError("its keys and values are not made of the memory")
        return found

    def is_answering(self) -> bool:
        """Say whether any matrix changes the answer."""
        return any(self.matters(name) for name in self.now if self.is_matrix(name))

    def takes_from_memory(self, found: Roles) -> bool:
        """Say whether queries are made of x, and keys and values of the memory: they are blind where these are."""
        plain, (x, memory) = self.answers(), (side[0] for side in self.sides())
        for side, source in (("q", x), ("k", memory), ("v", memory)):
            for piece in found.sides[side]:
                blind = self.column(piece.name, piece.inputs, piece.columns, apart(self.rng, source))
                if self.moved(plain, self.answers_under(piece.name, blind)):
                    return False
        return True

    def context(self, without: str) -> Context:
        """Return what the layer has before W_o, and where its values and W_o lie.

        Raises:
            NotFoundError: it has no values.
        """
        self.draw()
        if without:
            self.leave_out([without])
        matrices = [name for name in self.now if self.is_matrix(name)]
        self.quieten([name for name in self.now if name not in matrices])
        fed = {name: inputs for name in matrices if (inputs := self.takes_x(name)) is not None}
        self.rest = [name for name in matrices if name not in fed and name != without]
        values = {name: columns for name, inputs in fed.items() if (columns := self.value_columns(name, inputs))}
        if not values:
            raise NotFoundError("none of its parameters is a matrix of values")
        for name in self.open_gates(values):
            del values[name], fed[name]
        straight = {name: columns for name, inputs in fed.items()
                    if name in values and (columns := self.straight_columns(name, inputs))}  # fmt: skip
        last, inputs_of_o = self.output_matrix(self.rest)
        self.leave_out([name for name in self.rest if name != last and self.matters(name)])
        return Context(self, straight or values, fed, last, inputs_of_o)

    # What the layer holds meanwhile

    def leave_out(self, names: Sequence[str]) -> None:
        """Set parameters to 0 that are no part of attention."""
        for name in names:
            self.set_aside[name] = np.zeros_like(self.now[name])
            self.write(name, self.set_aside[name])

    def draw(self) -> None:
        """Give every parameter numbers that show: of matrices such that logits are about 1."""
        for name, array in self.now.items():
            if self.is_matrix(name):
                spread = 1.0 / np.sqrt(max(self.width, 1))
                self.write(name, self.rng.standard_normal(array.shape) * spread)

    def is_matrix(self, name: str) -> bool:
        """Say whether a parameter can be a matrix: two axes or more that are longer than 1."""
        return len([length for length in self.before[name].shape if length > 1]) > 1

    def quieten(self, names: Sequence[str]) -> None:
        """Set all that is no matrix to 0, or to 1 where 0 would leave a matrix without effect."""
        matrices = [name for name in self.now if self.is_matrix(name) and self.matters(name)]
        for name in names:
            self.write(name, np.zeros_like(self.now[name]))
        if all(self.matters(name) for name in matrices):
            return
        for name in names:
            self.write(name, np.ones_like(self.now[name]))
        for name in names:  # those that are needed stay
            self.write(name, np.zeros_like(self.now[name]))
            if not all(self.matters(matrix) for matrix in matrices):
                self.write(name, np.ones_like(self.now[name]))

    def write(self, name: str, array: Array) -> None:
        """Give a parameter other numbers until the end of the search."""
        self.now[name] = array
        self.layer.put({name: array})
        self.known.clear()

    def answer(self, tokens: int = 0) -> Array:
        """Return the answer for the last token of x, alone or with all others."""
        return np.asarray(self.answers(tokens)[-1])

    def answers(self, tokens: int = 0) -> Array:
        """Return the answer for every token of x, `[t m]`, which is asked once for the numbers that stand."""
        tokens = tokens or self.tokens
        if tokens not in self.known:
            self.known[tokens] = self.asked(tokens)
        return self.known[tokens]

    def asked(self, tokens: int) -> Array:
        """Return what the layer answers now for the last tokens of x."""
        x = self.x[:, -tokens:]
        if tokens == 1 and self.is_fixed:
            x = np.repeat(x, self.tokens, axis=1)
        try:
            said = self.probe(x) if self.other is None else self.probe(x, self.other[:, -tokens:])
        except Exception as error:  # it may want as many tokens on both sides
            raise NotFoundError(error_line(error)) from error
        if said.ndim != 3 or said.shape[1] != x.shape[1]:
            raise NotFoundError(f"its answer has the shape {list(said.shape)} for x of {list(x.shape)}")
        return np.asarray(said[0])

    def under(self, name: str, array: Array, tokens: int = 0) -> Array:
        """Return the answer while a parameter holds other numbers."""
        return np.asarray(self.answers_under(name, array, tokens)[-1])

    def answers_under(self, name: str, array: Array, tokens: int = 0) -> Array:
        """Return the answer for every token while a parameter holds other numbers."""
        self.layer.put({name: array})
        try:
            return self.asked(tokens or self.tokens)
        finally:
            self.layer.put({name: self.now[name]})

    def moved(self, one: Array, other: Array) -> bool:
        """Say whether two answers differ by more than rounding."""
        with np.errstate(all="ignore"):
            gap = np.abs(one - other).max(initial=0.0)
            return bool(not gap <= self.layer.rounding * max(np.abs(one).max(initial=0.0), 1e-3))

    def matters(self, name: str) -> bool:
        """Say whether a parameter changes the answer."""
        array = self.now[name]
        return self.moved(self.answers(), self.answers_under(name, array + self.rng.standard_normal(array.shape)))

    # What takes x, what is a value

    def takes_x(self, name: str) -> tuple[int, ...] | None:
        """Return the axis of a parameter that is multiplied by x, or None where none is."""
        array = self.now[name]
        plain = self.answers()
        if not self.matters(name):
            return None
        for axis in self.likely_axes(array):
            if array.shape[axis] != self.width:
                continue
            blind = [apart(self.rng, np.concatenate([side[0] for side in self.sides()]))]
            if self.moved(plain, self.answers_under(name, array + along(blind[0], axis, array, self.rng))):
                continue
            seen = along(self.sides()[-1][0, -1] / np.sqrt(self.width), axis, array, self.rng)
            if self.moved(plain, self.answers_under(name, array + seen)) or self.matters(name):
                return (axis,)
        return None

    def sides(self) -> list[Array]:
        """Return x, and what keys and values are made of where that is something else."""
        return [self.x] if self.other is None else [self.x, self.other]

    def likely_axes(self, array: Array) -> list[int]:
        """Return the axes of an array, the last of two first: matrices of layers are stored `[out in]`."""
        return [axis for axis in (1, 0, *range(2, array.ndim)) if axis < array.ndim]

    def value_columns(self, name: str, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """Return the columns of a matrix that changes the answer to one token: values are among them."""
        array = self.now[name]
        if not self.moved(self.answer(1), self.under(name, array + self.rng.standard_normal(array.shape), 1)):
            return ()
        return tuple(range(as_matrix(array, inputs).shape[1]))

    def straight_columns(self, name: str, inputs: tuple[int, ...]) -> tuple[int, ...]:
        """Return those of these columns that move the answer in a line: queries and keys do not.

        They change it where the weights of one token are not 1.
        """
        columns = self.value_columns(name, inputs)
        plain = self.answer(1) if columns else np.empty(0)
        if not columns or self.is_straight(name, inputs, columns, plain):
            return columns
        return tuple(column for column in columns if self.is_straight(name, inputs, (column,), plain))

    def is_straight(self, name: str, inputs: tuple[int, ...], columns: Sequence[int], plain: Array) -> bool:
        """Say whether the answer to one token, which is `plain` now, goes in a line where columns do.

        Raises:
            NotFoundError: a check has been at work for so long that its attention is looked at inside instead.
        """
        self.ends_in_time("too many of its columns bend the answer")
        step = self.column(name, inputs, columns, self.rng.standard_normal(self.width)) - self.now[name]
        there, back = (self.under(name, self.now[name] + sign * step, 1) for sign in (1.0, -1.0))
        return not self.moved((there + back) / 2, plain)

    def ends_in_time(self, said: str) -> None:
        """Leave the rest, where a check has been at work for so long.

        Raises:
            NotFoundError: it has, and `said` is what takes long.
        """
        if is_over(EXPLAINING, "which of its matrices is which"):
            raise NotFoundError(said)

    def column(self, name: str, inputs: tuple[int, ...], columns: Sequence[int], by: Array) -> Array:
        """Return a parameter with columns of its matrix moved along a vector, each by another length."""
        array = self.now[name]
        matrix = as_matrix(array, inputs).copy()
        matrix[:, list(columns)] += np.multiply.outer(by, self.rng.uniform(0.5, 1.5, len(columns)))
        return from_matrix(matrix, array.shape, inputs)

    def output_matrix(self, names: Sequence[str]) -> tuple[str, tuple[int, ...]]:
        """Return what the heads are multiplied by at last, and its axes that are summed over."""
        one = self.answer(1)
        for name in names:
            array = self.now[name]
            if not self.moved(one, self.under(name, array + self.rng.standard_normal(array.shape), 1)):
                continue
            for inputs in splits(array.shape):
                matrix = as_matrix(array, inputs).copy()
                if matrix.shape[1] != len(one) or len(matrix) < 2:
                    continue
                matrix[:, 1] = matrix[::-1, 1] * 2.0 + 0.3
                changed = np.abs(self.under(name, from_matrix(matrix, array.shape, inputs), 1) - one)
                if (
                    changed[1] > self.layer.rounding
                    and changed[[i for i in range(len(one)) if i != 1]].max(initial=0.0) < self.layer.rounding
                ):
                    return name, inputs
        return "", ()

    # Queries and keys

    def open_gates(self, values: Mapping[str, tuple[int, ...]]) -> list[str]:
        """Open the gates among what changes the answer to one token, and return them: values do it in proportion.

        A gate is opened by its bias.
        """
        found = list[str]()
        for name, columns in values.items():
            array, bias = self.now[name], self.bias_of(name, len(columns))
            none, half, whole = (self.under(name, array * factor, 1) for factor in (0.0, 0.5, 1.0))
            if bias and self.moved(half - none, whole - half):
                found.append(name)
        for name in found if len(found) < len(values) else ():
            for part, number in ((name, 0.0), (self.bias_of(name, len(values[name])), OPEN)):
                self.set_aside[part] = np.full(self.before[part].shape, number)
                self.write(part, self.set_aside[part])
        return found if len(found) < len(values) else []

    def queries_and_keys(
        self, fed: Mapping[str, tuple[int, ...]], taken: set[Place]
    ) -> tuple[list[Place], list[Place], bool]:
        """Return the columns that make queries and those that make keys, and whether they were told apart.

        The last query does not change where W_q is moved along a vector u with `u x = 0` for the last token, and keys
        do; where W_k is moved along one with `u x = 1` for all tokens, all logits of a query grow by the same.

        Raises:
            NotFoundError: a check has been at work for so long that its attention is looked at inside instead.
        """
        queries, keys, others = list[Place](), list[Place](), list[Place]()
        query, source = self.sides()[0][0], self.sides()[-1][0]
        blind = apart(self.rng, query[-1:]) * 2.0
        level = np.linalg.lstsq(source, np.ones(len(source)), rcond=None)[0] * 2.0
        plain = self.answer()

        def place_in(one: Place) -> tuple[int, int]:
            return list(fed).index(one[0]), one[1]

        def sort(name: str, columns: list[int]) -> None:
            self.ends_in_time("too many of its columns are to be told apart")
            inputs = fed[name]
            if not self.moved(plain, self.under(name, self.column(name, inputs, columns, blind))):
                queries.extend((name, column) for column in columns)
            elif not self.moved(plain, self.under(name, self.column(name, inputs, columns, level))):
                keys.extend((name, column) for column in columns)
            elif len(columns) == 1:
                others.append((name, columns[0]))
            else:
                sort(name, columns[: len(columns) // 2])
                sort(name, columns[len(columns) // 2 :])

        for name, inputs in fed.items():
            count = as_matrix(self.now[name], inputs).shape[1]
            rest = [column for column in range(count) if (name, column) not in taken]
            random = self.rng.standard_normal(self.width)
            if rest and self.moved(plain, self.under(name, self.column(name, inputs, rest, random))):
                sort(name, self.that_matter(name, inputs, rest, random) if self.leaves_out_matrices else rest)
        if queries and bool(keys) != bool(others):  # the others are keys that are turned by their place
            return queries, keys or others, True
        places, every_key = (sorted(some, key=place_in) for some in (queries + keys + others, keys + others))
        named = {self.hint(name) for name, _ in places} == {"q", "k"}
        if queries and every_key and not named and len(queries) % len(every_key) == 0:  # some of them are turned
            return queries, every_key, False
        return *self.by_name(places), False

    @property
    def leaves_out_matrices(self) -> bool:
        """Whether a matrix beside attention is 0, so that what another one makes for it matters to nothing."""
        return any(self.is_matrix(name) for name in self.set_aside)

    def that_matter(self, name: str, inputs: tuple[int, ...], columns: list[int], by: Array) -> list[int]:
        """Return those of some columns that change the answer where they are moved along a vector.

        Raises:
            NotFoundError: a check has been at work for so long that its attention is looked at inside instead.
        """
        self.ends_in_time("too many of its columns matter to the answer")
        if not columns or not self.moved(self.answer(), self.under(name, self.column(name, inputs, columns, by))):
            return []
        half = len(columns) // 2
        if not half:
            return columns
        return [one for some in (columns[:half], columns[half:]) for one in self.that_matter(name, inputs, some, by)]

    def by_name(self, places: list[Place]) -> tuple[list[Place], list[Place]]:
        """Return queries and keys by what their parameters are called, else the first half as queries."""
        said = {name: self.hint(name) for name, _ in places}
        queries = [place for place in places if said[place[0]] == "q"]
        keys = [place for place in places if said[place[0]] == "k"]
        if len(queries) + len(keys) == len(places) and queries and keys:
            return queries, keys
        half = len(places) // 2
        return places[:half], places[half:]

    # All of it in the order of heads

    def put_in_order(
        self, context: Context, sources: list[Place], heads: list[list[int]],
        columns_of: tuple[list[Place], list[Place]], sure: bool,
    ) -> Roles:  # fmt: skip
        """Return the roles: columns of q, k and v head by head, and the rows of W_o that belong to them."""
        fed, (queries, keys) = context.fed, columns_of
        shared = list(dict.fromkeys(tuple(sources[channel] for channel in head) for head in heads))
        shared.sort(key=lambda columns: (list(fed).index(columns[0][0]), columns[0][1]))
        groups, count = len(shared), len(heads)
        if len(queries) % count or len(keys) % groups or len(queries) // count != len(keys) // groups:
            raise NotFoundError(f"{len(queries)} columns of queries and {len(keys)} of keys do not fit {count} heads")
        readers = [{h for h, head in enumerate(heads) if tuple(sources[c] for c in head) == one} for one in shared]
        q_order = context.by_head(queries, [{h} for h in range(count)])
        k_order = context.by_head(keys, readers)
        values = [place for columns in shared for place in columns]
        last, inputs_of_o = context.last, context.inputs_of_o
        sides = {"q": q_order, "k": k_order, "v": values}
        pieces = {side: self.pieces(places, fed) for side, places in sides.items()}
        if last:
            width = self.now[last].size // int(np.prod([self.now[last].shape[axis] for axis in inputs_of_o]))
            pieces["o"] = [Piece(last, inputs_of_o, tuple(range(width)), self.bias_of(last, width))]
        known = {piece.bias for parts in pieces.values() for piece in parts}
        named = {piece.name for parts in pieces.values() for piece in parts}
        rest = [name for name in self.now if name not in known | named and name not in self.set_aside]
        loose = self.loose_biases([name for name in rest if not self.is_matrix(name)], pieces)
        aside = {name: self.now[name] for name in rest if name not in loose.values() and not self.is_matrix(name)}
        return Roles(
            pieces, len(heads), groups, tuple(channel for head in heads for channel in head), loose,
            self.set_aside | aside, sure, context.unit,
        )  # fmt: skip

    def pieces(self, places: list[Place], fed: Mapping[str, tuple[int, ...]]) -> list[Piece]:
        """Return columns as pieces of parameters, in their order."""
        made = list[Piece]()
        for name, column in places:
            if made and made[-1].name == name:
                made[-1] = Piece(name, fed[name], (*made[-1].columns, column), made[-1].bias)
            else:
                made.append(Piece(name, fed[name], (column,), self.bias_of(name, self.now[name].size // self.width)))
        return made

    def bias_of(self, name: str, columns: int) -> str:
        """Return the bias beside a matrix: of its name but for the last word, with a number for each column."""
        stem, word = stem_of(name)
        swapped = (f"{stem}{word.replace('weight', 'bias')}", f"{stem}{word.replace('kernel', 'bias')}", f"{stem}bias",
                   f"{stem}b")  # fmt: skip
        return next((one for one in swapped if one != name and one in self.now and self.now[one].size == columns), "")

    def loose_biases(self, names: Sequence[str], pieces: Mapping[str, list[Piece]]) -> dict[str, str]:
        """Return parameters with a name of their own that are the bias of one side, as `q_bias` is.

        A bias does what a matrix does that is moved along a vector u with `x u = 1` for every token.
        """
        found = dict[str, str]()
        for name in names:
            step = self.rng.standard_normal(self.now[name].size)
            said = self.under(name, self.now[name] + step.reshape(self.now[name].shape))
            for side in "ovqk":
                parts = pieces.get(side, [])
                sizes = sum(len(piece.columns) for piece in parts)
                if not parts or any(piece.bias for piece in parts) or sizes != step.size or f"b_{side}" in found:
                    continue
                if not self.moved(said, self.with_bias(side, parts, step)) and (side != "k" or self.hint(name) == "k"):
                    found[f"b_{side}"] = name
                    break
        return found

    def with_bias(self, side: str, parts: Sequence[Piece], step: Array) -> Array:
        """Return the answer that a bias of one side would give."""
        if side == "o":
            return self.answer() + step
        source = self.sides()[0 if side == "q" else -1][0]
        level = np.linalg.lstsq(source, np.ones(len(source)), rcond=None)[0]
        before, start = dict(self.now), 0
        for piece in parts:
            matrix = piece.whole(self.now[piece.name]).copy()
            columns = list(piece.columns)
            matrix[:, columns] += np.multiply.outer(level, step[start : start + len(columns)])
            start += len(columns)
            self.write(piece.name, from_matrix(matrix, self.now[piece.name].shape, piece.inputs))
        said = self.answer()
        for piece in parts:
            self.write(piece.name, before[piece.name])
        return said


class Context:
    """What a layer has before W_o, number by number, as far as the answer shows it."""

    def __init__(
        self, search: Search, values: Mapping[str, tuple[int, ...]], fed: Mapping[str, tuple[int, ...]], last: str,
        inputs_of_o: tuple[int, ...],
    ) -> None:  # fmt: skip
        self.search, self.values, self.fed = search, values, fed
        self.last, self.inputs_of_o = last, inputs_of_o
        self.places = [(name, column) for name, columns in values.items() for column in columns]
        self.found: list[list[int]] = []
        self.unit = 1.0

    def read(self, of_columns: Array, tokens: int) -> Array:
        """Return the context of the last token where the value of each column is `u x`: `[in columns]` gives the u."""
        search = self.search
        before = dict(search.now)
        for name, columns in self.values.items():
            matrix = as_matrix(search.now[name], self.fed[name]).copy()
            for place, (owner, column) in enumerate(self.places):
                if owner == name:
                    matrix[:, column] = of_columns[:, place]
            search.write(name, from_matrix(matrix, search.now[name].shape, self.fed[name]))
            assert columns
        try:
            return self.before_o(tokens)
        finally:
            for name in self.values:
                search.write(name, before[name])

    def before_o(self, tokens: int = 0) -> Array:
        """Return the context: the answer itself, or what W_o is given, which is then read a part at a time."""
        search = self.search
        if not self.last:
            before, said = {name: search.now[name] for name in self.values}, search.answer(tokens)
            for name in before:
                search.write(name, self.without_values(name))
            nothing = search.answer(tokens)
            for name, array in before.items():
                search.write(name, array)
            return said - nothing
        array = search.now[self.last]
        matrix = np.zeros_like(as_matrix(array, self.inputs_of_o))
        nothing = search.under(self.last, from_matrix(matrix, array.shape, self.inputs_of_o), tokens)
        parts = []
        for start in range(0, len(matrix), matrix.shape[1]):
            chosen = matrix.copy()
            size = min(matrix.shape[1], len(matrix) - start)
            chosen[start + np.arange(size), np.arange(size)] = 1.0
            said = search.under(self.last, from_matrix(chosen, array.shape, self.inputs_of_o), tokens)
            parts.append((said - nothing)[:size])
        return np.concatenate(parts)

    def without_values(self, name: str) -> Array:
        """Return a parameter with 0 in the columns that make values."""
        matrix = as_matrix(self.search.now[name], self.fed[name]).copy()
        matrix[:, list(self.values[name])] = 0.0
        return from_matrix(matrix, self.search.now[name].shape, self.fed[name])

    def sources(self) -> list[Place]:
        """Return for each number of the context the column of W_v that it comes from.

        Raises:
            NotFoundError: of one token the weights are not 1, or values are changed on the way.
        """
        x = self.search.sides()[-1][0, -1]
        counted = x[:, None] / (x @ x) * np.arange(1, len(self.places) + 1)
        numbers = self.counted_in(counted, x)
        if not numbers.any():  # weights of one token that are not 1: those of q and k that are 0 are all the same
            with self.with_zeros():
                numbers = self.counted_in(counted, x)
        if not numbers.any():
            raise NotFoundError("of one token alone, what is summed up is not its value")
        chosen = [self.places[number - 1] for number in numbers]
        self.places = [place for place in self.places if place in set(chosen)]
        return chosen

    def counted_in(self, counted: Array, x: Array) -> Array:
        """Return which value each number of the context is, where all are multiplied by one number; or zeros."""
        self.unit = 1.0
        context = self.read(counted, 1)
        numbers = self.whole_numbers(context)
        if not numbers.any():  # all values are multiplied by a number: it is what values of 1 give
            self.unit = float(np.median(self.read(np.repeat(x[:, None] / (x @ x), len(self.places), axis=1), 1)))
            numbers = self.whole_numbers(context)
        return numbers

    @contextmanager
    def with_zeros(self) -> Iterator[None]:
        """Let all that takes x and is no value be 0, meanwhile."""
        search = self.search
        before = {name: search.now[name] for name in self.fed}
        for name, inputs in self.fed.items():
            matrix = as_matrix(search.now[name], inputs).copy()
            matrix[:, [column for column in range(matrix.shape[1]) if (name, column) not in self.places]] = 0.0
            search.write(name, from_matrix(matrix, search.now[name].shape, inputs))
        try:
            yield
        finally:
            for name, array in before.items():
                search.write(name, array)

    def whole_numbers(self, context: Array) -> Array:
        """Return the numbers of columns that a context counts in its unit; zeros where it does not count them."""
        with np.errstate(all="ignore"):
            counted = context / self.unit
        known = np.isfinite(counted).all() and np.abs(counted - np.rint(counted)).max(initial=0.0) <= 1e-3
        if not known or (np.rint(counted) < 1).any() or (np.rint(counted) > len(self.places)).any():
            return np.zeros(len(context), int)
        return np.asarray(np.rint(counted).astype(int))

    def weights(self) -> Array:
        """Return the weight of every token for every number of the context, `[n s]`."""
        source = self.search.sides()[-1][0]
        chosen = np.linalg.pinv(source)  # chosen[:, j] gives 1 for token j and 0 for all others
        many = [self.read(np.repeat(chosen[:, [j]], len(self.places), axis=1), 0) for j in range(len(source))]
        return np.stack(many, axis=1) / self.unit

    def heads(self) -> list[list[int]]:
        """Return the numbers of the context head by head: those whose weights are the same.

        Raises:
            NotFoundError: heads have different sizes.
        """
        weights = self.weights()
        for channel, row in enumerate(weights):
            for head in self.found:
                if np.abs(weights[head[0]] - row).max() < self.search.layer.rounding * 10:
                    head.append(channel)
                    break
            else:
                self.found.append([channel])
        if len({len(head) for head in self.found}) != 1:
            raise NotFoundError("its heads differ in size")
        return self.found

    def by_head(self, places: list[Place], readers: Sequence[set[int]]) -> list[Place]:
        """Return columns of queries or keys head by head: by whose weights they change, which `readers` says.

        They stay as they are where they lie so, and where what they change says nothing.
        """
        each = len(places) // len(readers)
        parts = [places[start : start + each] for start in range(0, len(places), each)]
        with self.weight_of_first():
            plain = self.before_o()
            if all(self.changed_by(part, plain) <= reader for part, reader in zip(parts, readers, strict=True)):
                return places
            owners = [self.changed_by([place], plain) for place in places]
        ordered = [
            [place for place, own in zip(places, owners, strict=True) if own and own <= reader] for reader in readers
        ]
        return [place for part in ordered for place in part] if all(len(part) == each for part in ordered) else places

    def changed_by(self, places: Sequence[Place], plain: Array) -> set[int]:
        """Return the heads whose weights change where these columns do."""
        search = self.search
        before = {name: search.now[name] for name, _ in places}
        for name in before:
            columns = [column for owner, column in places if owner == name]
            by = search.rng.standard_normal(search.width)
            search.write(name, search.column(name, self.fed[name], columns, by))
        changed = np.abs(self.before_o() - plain) > search.layer.rounding
        for name, array in before.items():
            search.write(name, array)
        return {h for h, head in enumerate(self.found) if changed[head].any()}

    @contextmanager
    def weight_of_first(self) -> Iterator[None]:
        """Let the context be the weights of the first token, meanwhile."""
        search = self.search
        chosen = np.linalg.pinv(search.sides()[-1][0])[:, 0]
        before = {name: search.now[name] for name in self.values}
        for name in self.values:
            matrix = as_matrix(search.now[name], self.fed[name]).copy()
            matrix[:, [column for owner, column in self.places if owner == name]] = chosen[:, None]
            search.write(name, from_matrix(matrix, search.now[name].shape, self.fed[name]))
        try:
            yield
        finally:
            for name, array in before.items():
                search.write(name, array)


def splits(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the axes of an array that may be summed over: of a matrix one of two, of more axes one or two beside."""
    long = [axis for axis, length in enumerate(shape) if length > 1]
    if len(long) == 2:
        ones = tuple(axis for axis in range(len(shape)) if axis not in long)
        yield (long[1], *ones)
        yield (long[0], *ones)
    elif len(shape) == 3:
        yield from ((0, 1), (1, 2), (0, 2))


def apart(rng: np.random.Generator, rows: Array) -> Array:
    """Return a random vector that is orthogonal to these rows, and to all ones: a norm may have shifted them."""
    known = np.concatenate([rows, np.ones((1, rows.shape[1]))])
    vector = rng.standard_normal(rows.shape[1])
    return np.asarray(vector - known.T @ np.linalg.lstsq(known.T, vector, rcond=None)[0])


def along(vector: Array, axis: int, array: Array, rng: np.random.Generator) -> Array:
    """Return a change of an array that is this vector along one axis, and random along all others."""
    others = tuple(length for place, length in enumerate(array.shape) if place != axis)
    return np.moveaxis(np.multiply.outer(vector, rng.standard_normal(others)), 0, axis)


def stem_of(name: str) -> tuple[str, str]:
    """Return what stands before the last word of a name, and that word."""
    for sign in ("/", "."):
        if sign in name:
            head, _, tail = name.rpartition(sign)
            return head + sign, tail
    return "", name
