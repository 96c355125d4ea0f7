"""Settings that are left to the run's model: which they are, and the model asked for them."""

from __future__ import annotations

from attn_exp.config.schema import Config
from attn_exp.config.trained import LEFT, PLAIN, Model
from attn_exp.errors import UserError


def settled(config: Config) -> Config:
    """Return settings of which none is left to a model: its layer says them. They are as they were where none was.

    Raises:
        UserError: there is no model to ask, or it cannot be read.
    """
    left = asked(config)
    if not left:
        if config.model.family is None and config.model != Model():
            raise UserError("settings of model are given, but no model is chosen; choose one, such as model=bert")
        return config
    if config.model.family is None:
        raise UserError(
            f"{left[0]}={LEFT} is left to a model, and none is chosen; choose one: model=bert model.path=DIR"
        )
    from attn_exp.problem import models  # noqa: PLC0415 - most runs have none

    return models.applied(config)


def asked(config: Config) -> list[str]:
    """Return the names of the settings that are left to the model."""
    groups = {"embeddings": config.embeddings.source, "mask": config.mask, "position": config.position}
    plain = {"projections": config.projections.source} | {name: getattr(config, name) for name in PLAIN}
    return [*(name for name, said in groups.items() if LEFT in said), *(key for key in plain if plain[key] == LEFT)]
