"""Scales that a configuration sets: a class whose scores follow such a number is asked with the usual one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace

from attn_exp.diagnosis.asking.clock import MAKING, while_there_is_time
from attn_exp.diagnosis.asking.offer import parameters_of, plain
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.asking.uses import Use, uses_of
from attn_exp.diagnosis.inside.inner import UnreadError
from attn_exp.diagnosis.inside.other_words import are_open
from attn_exp.diagnosis.inside.weights_inside import OF_SCALE
from attn_exp.diagnosis.making.configurations import config_class, is_config, own_defaults
from attn_exp.diagnosis.making.told_sizes import is_module, sizes_of
from attn_exp.diagnosis.reading.modules import bound
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import HELD, REMARK, Finding, Verdict
from attn_exp.own_code import OwnFunction

POWERS = (("scalar", (1.0,)), ("temperature", (0.5, 0.0)), ("scal", (-0.5, 0.0)), ("multiplier", (-0.5, 0.0)))
"""Parts of the names of such numbers, and which powers of the size of a head they may be: that one itself, what scores
are divided by, or multiplied by, or 1 where the code divides by the root besides."""
OF_OTHERS = re.compile("rope|rotary|init|embed|resid|layerscale|rout|depth|width|image|channel|window|factorlist")
"""What says that a number scales something else."""
RUNG = "the scale that is set"


def with_its_scale_set(own: OwnFunction, request: Request) -> Request:
    """Return a request for a class with a number of its configuration that gives the usual scale, where one does.

    What stands there by default is a setting; what its code does to the scores beside that is seen with any. A class
    whose scores do not follow the number, or that has the usual scale with its own one, is asked as it is.
    """
    words = list(words_of_scale(own)) if are_open(request, "scale") and request.scale is True else []
    if not words or has_usual_scale(own, request) is not False:
        return request
    several = [replace(request, scale_set=(word, power)) for word, powers in words for power in powers]
    for one in while_there_is_time(several, MAKING, "other scales that its configuration may set"):
        if has_usual_scale(own, one):
            return one
    return request


def words_of_scale(own: OwnFunction) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the numbers of its configuration that a class reads, and that are called scales, with what they may be."""
    read, uses = configurations(own)
    for name in dict.fromkeys(name for _, use in read for name in (*use.fields, *use.keys)):
        word = plain(name)
        powers = next((powers for part, powers in POWERS if part in word), ())
        if powers and not OF_OTHERS.search(word) and not (name in uses and uses[name].is_switch):
            yield name, powers


def words_of_cap(own: OwnFunction) -> str:
    """Return the words of the cap of logits that the configuration of a class sets by default; none of others."""
    for one, use in configurations(own)[0]:
        kind = config_class(one, own.function)
        usual = {} if kind is None else own_defaults(kind)
        for name in use.fields:
            if CAPS.search(plain(name)) and type(usual.get(name)) in (int, float):
                return f"score=softcap score.softcap.cap={usual[name]:g}"
    return ""


CAPS = re.compile("softcap|logitcap|capping")
"""What a configuration calls such a cap."""


def configurations(own: OwnFunction) -> tuple[list[tuple[inspect.Parameter, Use]], dict[str, Use]]:
    """Return the parameters of a class that are configurations, each with what it reads of them, and all that it uses.

    The code of a class without one is not read.
    """
    is_class = inspect.isclass(own.function) and is_module(own.function)
    held = [one for one in parameters_of(own.function, own.name) if is_config(plain(one.name))] if is_class else []
    uses = uses_of(own.function) if held else {}
    return [(one, uses[one.name]) for one in held if one.name in uses], uses


def has_usual_scale(own: OwnFunction, request: Request) -> bool | None:
    """Say whether the scale that is seen inside a layer of a class is the usual one; None where none is seen."""
    seen: Verdict | None = None
    try:
        seen = bound(own, request).look()
    except UnreadError as error:
        seen = error.look()
    except UserError:
        return None
    states = [one.state for one in seen.findings if one.rung == OF_SCALE] if seen is not None else []
    return all(one == HELD for one in states) if states else None


def said_of_scale(request: Request) -> Iterator[tuple[Finding, str]]:
    """Yield what is to be said of a class that was asked with another number in its configuration than its own."""
    if request.scale_set is not None:
        word, power = request.scale_set
        value = sizes_of(request).size ** power
        said = f"by {word} in its configuration, not by its code; asked with {value:.4g}, which makes it the usual one"
        yield Finding(RUNG, REMARK, said), ""
