"""The first call of a layer of Keras, which gives it its weights: JAX alone would compile each of its operations."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from attn_exp.diagnosis.code.libraries import in_jax
from attn_exp.diagnosis.code.traced import is_about_values, of_arrays


class BuiltError(Exception):
    """A layer has its weights by now, and no more was wanted of its call."""


def built(layer: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Let a layer make its weights, and those inside it theirs, as a call does; say whether that could be done.

    As Keras does it for a graph, the call itself is traced alone, and only what it makes is computed.

    Raises:
        Exception: whatever a call raises.
    """
    import jax  # noqa: PLC0415 - Keras computes with it

    call = layer.call

    def traced(*given: Any, **others: Any) -> Any:
        def stateless(*now: Any) -> None:
            of_them(*now)

        of_them, arrays, _ = of_arrays(lambda first, rest: call(*first, **rest), (list(given), others))
        with sys.modules["keras"].StatelessScope():  # as it is left, the weights that were made in it get their numbers
            jax.make_jaxpr(stateless)(*arrays)
        raise BuiltError

    before = vars(layer).get("call")
    vars(layer)["call"] = traced
    try:
        with drawn_in_numpy():
            layer(*positional, **named)
    except BuiltError:
        return True
    except Exception as error:
        if not is_about_values(error):
            raise
    finally:
        if before is None:
            del vars(layer)["call"]
        else:
            vars(layer)["call"] = before
    return False


@contextmanager
def drawn_in_numpy() -> Iterator[None]:
    """Let NumPy draw what JAX is asked for by a key that is known: to draw some numbers takes JAX a second at first."""
    import jax  # noqa: PLC0415 - Keras computes with it

    def with_numpy(draw: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
        def drawn(key: Any, *others: Any, dtype: Any = None, **named: Any) -> Any:
            if dtype is None or isinstance(key, jax.core.Tracer):
                return draw(key, *others, **({} if dtype is None else {"dtype": dtype}), **named)
            rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
            return in_jax(plain(rng, *others, **named), jax.numpy.dtype(dtype))

        return drawn

    with ExitStack() as stack:
        for name, plain in DRAWN.items():
            stack.enter_context(patch.object(jax.random, name, with_numpy(getattr(jax.random, name), plain)))
        yield


def uniform(rng: np.random.Generator, shape: Sequence[int] = (), minval: float = 0.0, maxval: float = 1.0) -> Any:
    """Return numbers between two, each as likely."""
    return rng.uniform(minval, maxval, shape)


def normal(rng: np.random.Generator, shape: Sequence[int] = ()) -> Any:
    """Return numbers of a normal distribution."""
    return rng.standard_normal(shape)


def truncated_normal(rng: np.random.Generator, lower: float, upper: float, shape: Sequence[int] = ()) -> Any:
    """Return numbers of a normal distribution between two."""
    found = rng.standard_normal(shape)
    while (outside := (found < lower) | (found > upper)).any():
        found = np.where(outside, rng.standard_normal(shape), found)
    return found


DRAWN: dict[str, Callable[..., Any]] = {"uniform": uniform, "normal": normal, "truncated_normal": truncated_normal}


@contextmanager
def without_logs() -> Iterator[None]:
    """Keep what a library logs of a call that it fails to itself: dozens are tried, and fail on purpose."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
