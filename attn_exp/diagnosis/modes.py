"""What a class of modules does in evaluation with dropout, and in training without any: both must change nothing."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from attn_exp.diagnosis.bound import Bound
from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.case import Case, same_answer, same_numbers
from attn_exp.diagnosis.configurations import is_config
from attn_exp.diagnosis.constructing import construct
from attn_exp.diagnosis.layers import TorchLayer
from attn_exp.diagnosis.libraries import DIGITS
from attn_exp.diagnosis.offer import parameters_of, plain
from attn_exp.diagnosis.plain_layers import PlainLayer
from attn_exp.diagnosis.plain_layers import evaluated as told_to_evaluate
from attn_exp.diagnosis.pure_layers import kind_of
from attn_exp.diagnosis.sizes_of_files import exchanged as of_file
from attn_exp.diagnosis.sizes_of_files import smaller
from attn_exp.diagnosis.told_sizes import sizes_of
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import ABSENT, BROKEN, HELD, REMARK, Finding
from attn_exp.own_code import OwnFunction, held

RATE = 0.5
"""Of the weights that are dropped, where a class is told how many."""


def in_both_modes(own: OwnFunction, function: Bound, caller: Caller, case: Case) -> Iterator[tuple[Finding, str]]:
    """Yield what evaluation with dropout and training without it give; nothing of what is no class of modules.

    A class of no library is asked in evaluation alone: what it is told then is not known.
    """
    layer = function.layer
    if not inspect.isclass(own.function) or kind_of(own.function) or not isinstance(layer, TorchLayer | PlainLayer):
        return
    yield evaluated(own, layer, caller, case)
    if isinstance(layer, TorchLayer):
        yield trained(layer, caller, case)


def evaluated(own: OwnFunction, layer: TorchLayer | PlainLayer, caller: Caller, case: Case) -> tuple[Finding, str]:
    """Make the class with dropout, and ask it twice in evaluation: the answers are equal."""
    rung = "dropout in evaluation"
    words = [plain(one.name) for one in parameters_of(own.function, own.name)]
    if not any("drop" in word or is_config(word) for word in words):
        return Finding(rung, ABSENT, "its class has no word for dropout"), ""

    def works(made: Any, _: Any) -> bool:
        with exchanged(layer, made):
            answers = [caller(case).output for _ in range(2)]
        if answers[0] is None:
            raise UserError("it gives no answer")
        return same_numbers(*answers)

    sizes = replace(sizes_of(caller.request), dropout=RATE)
    told = smaller(own.function, sizes) if isinstance(layer, TorchLayer) else {}
    try:
        with held(), of_file(own.function, told):
            steady = construct(own.function, own.name, sizes, works)
    except Exception:
        return Finding(rung, ABSENT, "it could not be made with dropout"), ""
    said = f"made with dropout={RATE:g}, the same call gave different answers"
    return (Finding(rung, HELD), "") if steady else (Finding(rung, BROKEN, said), "dropout_on")


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
def exchanged(layer: TorchLayer | PlainLayer, made: Any) -> Iterator[None]:
    """Put another object of its class, told that this is no training, in the place of a layer's own, meanwhile."""
    if isinstance(layer, TorchLayer):
        other = {"module": made.double().eval()}
        with suppress(Exception):  # a new one may have zeros where the layer was given numbers
            made.load_state_dict(layer.module.state_dict(), strict=False)
    else:
        plain_layer = PlainLayer(told_to_evaluate(made))
        other = {"forward": plain_layer.forward, "places": plain_layer.places}
    before = {name: getattr(layer, name) for name in other}
    try:
        vars(layer).update(other)
        yield
    finally:
        vars(layer).update(before)
