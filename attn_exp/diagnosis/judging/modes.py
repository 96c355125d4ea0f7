"""What a class of modules does in evaluation with dropout, and in training without any: both must change nothing."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case, same_answer, same_numbers
from attn_exp.diagnosis.asking.offer import parameters_of, plain
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.code.libraries import DIGITS
from attn_exp.diagnosis.making.configurations import is_config
from attn_exp.diagnosis.making.constructing import construct
from attn_exp.diagnosis.making.told_sizes import sizes_of
from attn_exp.diagnosis.matrices.bound import Bound, Layer
from attn_exp.diagnosis.matrices.layers import TorchLayer
from attn_exp.diagnosis.matrices.module_sizes import Sizes
from attn_exp.diagnosis.matrices.plain_layers import PlainLayer
from attn_exp.diagnosis.matrices.plain_layers import evaluated as told_to_evaluate
from attn_exp.diagnosis.matrices.pure_layers import kind_of
from attn_exp.diagnosis.matrices.sizes_of_files import exchanged as of_file
from attn_exp.diagnosis.matrices.sizes_of_files import smaller
from attn_exp.diagnosis.reading.layers_of_jax import maker_of, way_into_pure
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, REMARK, Finding
from attn_exp.own_code import OwnFunction, held

RATE = 0.5
"""Of the weights that are dropped, where a class is told how many."""


def in_both_modes(own: OwnFunction, function: Bound, caller: Caller, case: Case) -> Iterator[tuple[Finding, str]]:
    """Yield what evaluation with dropout and training without it give; nothing of what is no class of modules.

    A class of no library, of JAX or of Keras is asked in evaluation alone: what it is told then is not known.
    """
    layer = function.layer
    if not inspect.isclass(own.function) or layer is None:
        return
    yield evaluated(own, layer, caller, case)
    if isinstance(layer, TorchLayer):
        yield trained(layer, caller, case)


def evaluated(own: OwnFunction, layer: Layer, caller: Caller, case: Case) -> tuple[Finding, str]:
    """Make the class with dropout, and ask it twice in evaluation: both answers are those that it gives without any."""
    rung = "dropout in evaluation"
    words = [plain(one.name) for one in parameters_of(own.function, own.name)]
    if not any("drop" in word or is_config(word) for word in words):
        return Finding(rung, ABSENT, "its class has no word for dropout"), ""

    def answers(made: Any, of_size: Sizes) -> list[Array]:
        with exchanged(own, layer, made, of_size, caller.request):
            said = [caller(case).output for _ in range(2)]
        if said[0] is None or said[1] is None:
            raise UserError("it gives no answer")
        return [one for one in said if one is not None]

    def made_with(rate: float) -> list[Array] | None:
        sizes = replace(sizes_of(caller.request), dropout=rate)
        told = {} if isinstance(layer, PlainLayer) else smaller(own.function, sizes)
        with suppress(Exception), held(), of_file(own.function, told):
            said: list[Array] = construct(maker_of(own, kind_of(own.function)), own.name, sizes, answers)
            return said
        return None

    said, before = made_with(RATE), caller(case).output
    if said is None or before is None:
        return Finding(rung, ABSENT, "it could not be made with dropout"), ""
    if not same_numbers(*said):
        return Finding(rung, BROKEN, f"made with {WITH}, the same call gave different answers"), "dropout_on"
    again = None if is_near(said[0], before) else made_with(0.0)
    if again is None or not is_near(again[0], before):  # it is right, or others hold other numbers than it does
        return Finding(rung, HELD), ""
    return Finding(rung, BROKEN, f"made with {WITH}, it gives other answers than without"), "dropout_on"


WITH = f"dropout={RATE:g}"


def is_near(one: Array, other: Array) -> bool:
    """Say whether two answers are the same but for rounding; objects made of other sizes have answers of others."""
    if one.shape != other.shape:
        return False
    return bool(np.allclose(one, other, rtol=1e-3, atol=1e-4 * float(np.abs(other).max(initial=0.0)), equal_nan=True))


def trained(layer: TorchLayer, caller: Caller, case: Case) -> tuple[Finding, str]:
    """Ask a module that was made without dropout in training: its answer is that of evaluation."""
    rung = "training without dropout"
    before = caller(case)
    try:
        layer.module.train()
        after = caller(case)
    finally:
        layer.module.eval()
    if after.output is None:
        return Finding(rung, REMARK, after.error), ""
    if same_answer(before, after, case, DIGITS["float32"]):
        return Finding(rung, HELD), ""
    return Finding(rung, REMARK, "another answer than in evaluation"), ""


@contextmanager
def exchanged(own: OwnFunction, layer: Layer, made: Any, of_size: Sizes, request: Request) -> Iterator[None]:
    """Put another object of its class, told that this is no training, in the place of a layer's own, meanwhile."""
    known, before = layer.parameters, dict(vars(layer))
    if isinstance(layer, TorchLayer):
        other: Mapping[str, Any] = before | {"module": made.double().eval()}
        with suppress(Exception):  # a new one may have zeros where the layer was given numbers
            made.load_state_dict(layer.module.state_dict(), strict=False)
    elif isinstance(layer, PlainLayer):
        plain_layer = PlainLayer(told_to_evaluate(made))
        plain_layer.put({name: array for name, array in known.items() if name in plain_layer.places})
        other = before | {"forward": plain_layer.forward, "places": plain_layer.places}
    else:
        pure_layer, _ = way_into_pure(own, request, kind_of(own.function), made, of_size)
        pure_layer.put({name: array for name, array in known.items() if name in pure_layer.leaves})
        other = vars(pure_layer)
    try:
        vars(layer).clear()
        vars(layer).update(other)
        yield
    finally:
        vars(layer).clear()
        vars(layer).update(before)
