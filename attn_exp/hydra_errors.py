"""What Hydra and OmegaConf found wrong, said in the user's words, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from attn_exp.config import UserError, unknown
from attn_exp.hydra_edge import conf_dir


@contextmanager
def in_users_words() -> Iterator[None]:
    """Let what Hydra and OmegaConf find wrong be a `UserError` of one line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(worded(error)) from error


def worded(error: Exception) -> str:
    """Return one line that names the word that was wrong, and the words that would be right."""
    for each in causes(error):
        if isinstance(each, MissingConfigException):
            return missing_choice(each)
        if isinstance(each, OverrideParseException):
            return f"cannot read {each.override!r}; write key=value, without spaces"
        if isinstance(each, HydraException) and "Ambiguous value" in str(each):
            word = str(each).split("'")[1]
            return f"{word}: to run several values, sweep with -m {word}; for one list write brackets"
        if isinstance(each, ConfigKeyError | ConfigAttributeError) and isinstance(each.parent_node, DictConfig):
            return missing_key(str(each.full_key), each.parent_node)
    return first_line(error)


def missing_choice(error: MissingConfigException) -> str:
    """Name the choices of a group, and the one that was perhaps meant."""
    group, _, word = str(error.missing_cfg_file or "").rpartition("/")
    choices = sorted(error.options or (path.stem for path in (conf_dir() / group).glob("*.yaml")))
    return unknown(word, choices, group) if group and choices else first_line(error)


def missing_key(key: str, parent: DictConfig) -> str:
    """Name the keys beside one that does not exist."""
    prefix = key.rpartition(".")[0]
    return unknown(key, [f"{prefix}.{name!s}".lstrip(".") for name in parent if name != "hydra"], "setting")


def causes(error: BaseException | None) -> list[BaseException]:
    """Return the error and all that caused it, outermost first."""
    return [] if error is None else [error, *causes(error.__cause__ or error.__context__)]


def first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
