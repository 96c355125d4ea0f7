"""Find what surrounds the attention of a layer: norms before the projections, and norms and residuals after them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.locate.matrices import NAMES, Matrices, Projection, UnreadMatricesError
from attn_exp.diagnosis.locate.recording import Recording, tokens_given, unlay
from attn_exp.forms.around import Around, Norm, normed

KINDS, EPSILONS = ("LayerNorm", "RMSNorm", "L2"), (1e-5, 1e-6, 1e-12, 1e-8, 1e-3, 0.0)


def find_surroundings(recording: Recording, found: Matrices, context: Array | None) -> Around | None:
    """Return the norms and residuals around attention, or None.

    `context` holds the rows of the first run, `[tokens n]`, used if there is no output projection.

    Raises:
        UnreadMatricesError: something else surrounds attention.
    """
    given = tokens_given(recording)
    queries = "x" if "x" in recording.layer.inputs else "q"
    is_self = len(recording.layer.inputs) == 1
    norms = {name: find_norm(given, found.inputs[name], of, recording.exact) for name, of in NAMES.items()}
    for name in "qv" if is_self else "v":
        if not are_same_norms(norms[name], norms["k"], recording.exact):
            raise UnreadMatricesError("queries, keys and values are normalized in different ways")
    of_x, of_memory = norms["q"], norms["k"]
    before = Around(before=of_x, of_memory=None if is_self else of_memory)
    answer = answer_rows(recording)
    if found.output is not None:
        made = output_rows(recording, found.output)
    elif context is not None and answer is not None:
        made, answer = context[None], answer[:1]
    else:
        return before if str(before) else None
    if answer is None or made.shape[:2] != answer.shape[:2]:
        raise UnreadMatricesError("the output does not have one row per token")
    x = given[: len(answer), : answer.shape[1]]
    places = np.arange(answer.shape[1]).reshape(len(recording.given[0][queries]), -1)
    for order in (places.ravel(), places.T.argsort(axis=None).ravel()):  # batch first, or tokens first
        for around in find_possible(before, x, made[:, order], answer, recording.exact):
            if are_close(around.finish(x, made[:, order]), answer, recording.exact):
                return around if str(around) else None
    if found.output is None:  # the context, like the output, is compared with the definition
        return before if str(before) else None
    last = recording.first.outputs[0][0]
    end = last + 1 if isinstance(last, int) else None
    names = dict.fromkeys(one.name for one in recording.first.operations[found.output.operation + 1 : end])
    raise UnreadMatricesError(f"the operations after the output projection are not known ({', '.join(names)})")


def are_same_norms(one: Norm | None, other: Norm | None, exact: float) -> bool:
    if one is None or other is None:
        return one is other
    return (
        (one.kind, one.eps) == (other.kind, other.eps)
        and are_close(one.gain, other.gain, exact)
        and are_close(one.shift, other.shift, exact)
    )


def find_possible(before: Around, x: Array, made: Array, answer: Array, exact: float) -> Iterator[Around]:
    yield before
    if made.shape != answer.shape:
        return
    starts = [replace(before, residual=True)] if x.shape == made.shape else []
    starts += [replace(before, residual=True, of_normed=True)] if starts and before.before is not None else []
    yield from starts
    for start in (before, *starts):
        norm = fit_norm(start.finish(x, made), answer, exact)
        if norm is not None:
            yield replace(start, last=norm)
    for start in starts:
        norm = fit_norm(made, answer - (start.x(x) if start.of_normed else x), exact)
        if norm is not None:
            yield replace(start, inner=norm)


def find_norm(given: Array, inputs: Array, what: str, exact: float) -> Norm | None:
    """Return the norm between the tokens and a projection's inputs; None if the inputs are the tokens.

    Raises:
        UnreadMatricesError: another operation lies in between.
    """
    known, given = np.isfinite(inputs).all(axis=(0, 2)), given[..., : inputs.shape[-1]]
    if inputs.shape == given.shape:
        if are_close(inputs[:, known], given[:, known], exact):
            return None
        norm = fit_norm(given[:, known], inputs[:, known], exact)
        if norm is not None:
            return norm
    raise UnreadMatricesError(f"the {what} are not computed from the tokens alone")


def fit_norm(z: Array, y: Array, exact: float) -> Norm | None:
    """Fit the norm along the last axis that maps z to y, with its gain and shift; None if no norm does."""
    for kind in KINDS:
        for eps in EPSILONS:
            rows = normed(kind, z, eps).reshape(-1, z.shape[-1])
            target = y.reshape(-1, y.shape[-1])
            centred, wanted = rows - rows.mean(axis=0), target - target.mean(axis=0)
            gain = (centred * wanted).sum(axis=0) / np.maximum((centred * centred).sum(axis=0), 1e-300)
            shift = target.mean(axis=0) - gain * rows.mean(axis=0)
            if are_close(rows * gain + shift, target, exact):
                return Norm(kind, gain, shift, eps)
    return None


def output_rows(recording: Recording, output: Projection) -> Array:
    """Return the rows that the output projection produces, `[runs rows n]`, in the order of its trace."""
    rows = output_inputs(recording, output) @ output.weight
    return np.asarray(rows + (0.0 if output.bias is None else output.bias))


def output_inputs(recording: Recording, output: Projection) -> Array:
    """Return the rows that enter the output projection, `[runs rows m]`."""
    return np.array([one[0] for one in recording.sides(output.operation, output.side) or ()], float)


def answer_rows(recording: Recording) -> Array | None:
    role = "x" if "x" in recording.layer.inputs else "q"
    count = recording.given[0][role].shape[0] * recording.given[0][role].shape[1]
    every = [unlay(one.outputs[0][1], recording.layer.inputs[role]) for one in recording.traces if one.outputs]
    rows = [one.reshape(-1, one.shape[-1]) for one in every if one.ndim]
    return np.array(rows) if len(rows) == len(recording.traces) and len(rows[0]) == count else None


def are_close(one: Array, other: Array, exact: float) -> bool:
    return one.shape == other.shape and bool(
        np.abs(one - other).max(initial=0.0) <= exact * max(np.abs(other).max(), 1.0)
    )
