"""The folder that is made of a library's classes of attention."""

from __future__ import annotations

from benchmarks.library_classes import classes_in

MODEL = """
class {name}Attention:
    \"\"\"The attention of {name}.\"\"\"

    def __init__(self, config: {name}Config):
        self.heads = config.heads

    def forward(self, x):
        return softmax(x {scaled}) @ x
"""


def test_a_class_counts_once_whatever_its_model_is_called() -> None:
    one, other, unscaled = (
        list(classes_in(MODEL.format(name=name, scaled=scaled)))
        for name, scaled in (("Alpaca", "* 2"), ("Bear", "* 2"), ("Bear", ""))
    )
    assert [name for name, _ in one + other] == ["AlpacaAttention", "BearAttention"]
    assert one[0][1] == other[0][1] != unscaled[0][1]


def test_what_weighs_nothing_or_is_not_called_is_left_out() -> None:
    assert not list(classes_in(MODEL.replace("softmax", "relu").format(name="A", scaled="")))
    assert not list(classes_in(MODEL.replace("forward", "made").format(name="A", scaled="")))
    assert not list(classes_in("class Broken(:"))
