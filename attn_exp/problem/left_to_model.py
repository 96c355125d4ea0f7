"""Settings that are left to the run's model, and the forward pass that provides them.

Points of a sweep that differ only in the layer share one pass, so that no layer is computed twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attn_exp.config.inputs import LEFT, PLAIN, Model
from attn_exp.config.schema import Config
from attn_exp.errors import UserError


@dataclass
class Pass:
    """A forward pass that has stopped at a layer, and continues from there if the next point asks for a later one.

    `model` is its settings, except for the layer; `checkpoint` and `tokens` are what it was opened with; `layers`
    yields those after `layer`, whose index is `number`. It holds the vectors of one layer, however deep the model is.
    """

    model: Model | None = None
    checkpoint: Any = None
    tokens: tuple[str, ...] = ()
    layers: Any = None
    layer: Any = None
    number: int = -1


def ask_model(config: Config, under_way: Pass | None = None) -> Config:
    """Fill in the settings that are left to a model from its layer; without any, return them unchanged.

    `under_way` is the pass of the previous point, if several are computed one after the other.

    Raises:
        UserError: there is no model, or it cannot be read.
    """
    left = left_to_model(config)
    if not left:
        if config.model.family is None and config.model != Model():
            raise UserError("settings of model are given, but no model is chosen; choose one, such as model=bert")
        return config
    if config.model.family is None:
        raise UserError(
            f"{left[0]}={LEFT} is left to a model, and none is chosen; choose one: model=bert model.path=DIR"
        )
    from attn_exp.problem import models  # noqa: PLC0415 - most runs have none

    return models.applied(config, under_way or Pass())


def left_to_model(settings: Any) -> list[str]:
    sources = {name: item(item(settings, name), "source") for name in ("embeddings", "projections")}
    groups = {"embeddings": sources["embeddings"], "mask": item(settings, "mask")}
    groups["position"] = item(settings, "position")
    plain = {"projections": sources["projections"]} | {name: item(settings, name) for name in PLAIN}
    return [*(name for name, said in groups.items() if LEFT in said), *(key for key in plain if plain[key] == LEFT)]


def item(section: Any, name: str) -> Any:
    return section.get(name) if isinstance(section, Mapping) else getattr(section, name)
