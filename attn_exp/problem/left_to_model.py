"""Settings that are left to the run's model: which they are, and the model asked for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attn_exp.config.inputs import LEFT, PLAIN, Model
from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.problem.forward_pass import Pass


def ask_model(config: Config, under_way: Pass | None = None) -> Config:
    """Return settings of which none is left to a model: its layer says them. They are as they were where none was.

    `under_way` is the pass of the last point, where several are computed one after the other.

    Raises:
        UserError: there is no model to ask, or it cannot be read.
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
    """Return the names of the settings that are left to the model, of a configuration or its plain values."""
    sources = {name: item(item(settings, name), "source") for name in ("embeddings", "projections")}
    groups = {"embeddings": sources["embeddings"], "mask": item(settings, "mask")}
    groups["position"] = item(settings, "position")
    plain = {"projections": sources["projections"]} | {name: item(settings, name) for name in PLAIN}
    return [*(name for name, said in groups.items() if LEFT in said), *(key for key in plain if plain[key] == LEFT)]


def item(section: Any, name: str) -> Any:
    """Return a setting of a section."""
    return section.get(name) if isinstance(section, Mapping) else getattr(section, name)
