"""What Hydra and OmegaConf found wrong, said in the user's words, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from attn_exp.config.choices import choices
from attn_exp.errors import UserError, first_line, unknown


@contextmanager
def in_users_words() -> Iterator[None]:
    """Let what Hydra and OmegaConf find wrong be a `UserError` of one line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        ours = next((cause for cause in causes(error) if isinstance(cause, UserError)), None)
        raise (ours or UserError(worded(error))) from error


@contextmanager
def what_hydra_stumbles_over() -> Iterator[None]:
    """Let any error of Hydra's be a `UserError`: around its own work on a user's words and files, and nothing else.

    Hydra meets some words and some YAML with an assertion, an attribute that is missing or an OSError of its own.
    """
    with in_users_words():
        try:
            yield
        except (HydraException, OmegaConfBaseException, YAMLError, UserError):
            raise
        except UnicodeDecodeError as error:
            place = f"byte {error.object[error.start]:#x} at position {error.start}"
            raise UserError(f"a YAML file in --config-dir is not UTF-8 ({place})") from error
        except RecursionError as error:
            raise UserError("the settings nest too deeply to be read") from error
        except Exception as error:
            raise UserError(f"cannot read the settings: {first_line(error)}") from error


def worded(error: Exception) -> str:
    """Return one line that names the word that was wrong, and the words that would be right."""
    for cause in causes(error):
        if isinstance(cause, MissingConfigException):
            return missing_choice(cause)
        if isinstance(cause, OverrideParseException):
            from attn_exp.config.hints import unread  # noqa: PLC0415 - hints are for mistakes; most words are right

            return unread(str(cause.override))
        if isinstance(cause, MarkedYAMLError) and cause.problem_mark:
            return f"{cause.problem_mark.name}, line {cause.problem_mark.line + 1}: {cause.problem}"
        if isinstance(cause, HydraException) and (message := reworded(str(cause))):
            return message
        if isinstance(cause, ConfigKeyError | ConfigAttributeError) and isinstance(cause.parent_node, DictConfig):
            return missing_key(str(cause.full_key), cause.parent_node)
    merging = isinstance(error, HydraException) and ("Error merging override" in str(error) or "In '" in str(error))
    return unmerged(error) if merging else first_line(error)


def reworded(message: str) -> str:
    """Say what a message of Hydra's that quotes one word means for its user; nothing for messages clear enough."""
    word = message.split("'")[1] if message.count("'") > 1 else ""
    if "Ambiguous value" in message or "requires --multirun" in message:
        return f"{word}: to run several values, sweep with -m {word}; for one list write brackets"
    if "An item is already at" in message:
        return f"{word} has a value already; write {word}=... without the +"
    return ""


def missing_choice(error: MissingConfigException) -> str:
    """Name the choices of a group, and the one that was perhaps meant."""
    group, _, word = str(error.missing_cfg_file or "").rpartition("/")
    known = sorted(error.options or choices(group))
    return unknown(word, known, group) if group and known else first_line(error)


def unmerged(error: Exception) -> str:
    """Name the word or the file that does not fit the settings, and say why, as the innermost error does."""
    head = first_line(error)
    what = head.split("'")[1] + ".yaml" if head.startswith("In '") else head.removeprefix("Error merging override ")
    reason = next(line for line in reversed([str(cause).partition("\n")[0] for cause in causes(error)]) if line)
    return f"{what} does not fit the settings: {reason}"


def missing_key(key: str, parent: DictConfig) -> str:
    """Name the keys beside one that does not exist."""
    from attn_exp.config.hints import unknown_setting  # noqa: PLC0415 - as above

    prefix = key.rpartition(".")[0]
    return unknown_setting(key, [f"{prefix}.{name!s}".lstrip(".") for name in parent if name != "hydra"])


def causes(error: BaseException | None) -> list[BaseException]:
    """Return the error and all that caused it, outermost first."""
    return [] if error is None else [error, *causes(error.__cause__ or error.__context__)]
