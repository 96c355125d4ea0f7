"""What a module is made of: its sizes by the words of its parameters, its configuration or its own numbers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.offer import ROLES, plain
from attn_exp.errors import UserError

WIDTH = ("embeddim", "dmodel", "dim", "hiddensize", "embedsize", "nembd", "modeldim", "din", "dimin", "embed", "d",
         "m", "width", "hidden", "hiddendim", "features", "channels", "embdim", "emb", "c", "nembed", "querydim",
         "size", "indim", "inputdim", "insize", "inputsize", "inchannels", "inputchannels", "units", "nunits", "hid",
         "hiddim", "dimhid", "nhid", "nchannels", "edim", "demb", "ndim")  # fmt: skip
INNER = ("dout", "outdim", "dimout", "innerdim", "outfeatures", "outputdim", "outchannels",
         "outputsize", "outsize")  # fmt: skip
HEADS = ("numheads", "nheads", "heads", "nhead", "h", "numattentionheads", "nattentionheads", "nh", "numattnheads",
         "numheadsq", "nqheads", "headcount", "headnumber", "nattnheads", "headsnum", "numqueryheads",
         "head", "headnum", "headsnumber")  # fmt: skip
SHARED = (
    "numkvheads",
    "nkvheads",
    "kvheads",
    "numkeyvalueheads",
    "nkvhead",
    "kvhead",
    "numgroups",
    "nkv",
    "numkv",
    "numkvgroups",
    "nkvgroups",
    "kvgroups",
    "groupnum",
    "groupsnum",
    "groupcount",
)
SIZE = ("headdim", "dimhead", "dhead", "dk", "dv", "headsize", "hd", "sizeperhead", "dimperhead", "dkey", "attndim")
LENGTH = ("contextlength", "maxlen", "blocksize", "maxseqlen", "maxpositionembeddings", "seqlen", "nctx", "maxlength",
          "ctxlen", "maxpositions", "npositions")  # fmt: skip
IMAGES = ("resolution", "inputresolution", "imgsize", "imagesize", "fmapsize", "featsize", "featuresize",
          "featuremapsize", "gridsize", "spatialsize")  # fmt: skip
"""What people call the sides of an image, in one word."""
ROOM, FEW = 256, 9
"""Tokens that a class is told first, for which it makes a mask or a table, and those that one is told which insists on
its length: fewer than the numbers of each, and those of a square image."""
DROPOUT = ("dropout", "attndropout", "dropoutp", "pdropout", "attnpdrop", "residpdrop", "attentiondropout",
           "residdropout", "droprate", "pdrop", "attentionprobsdropoutprob", "hiddendropoutprob")  # fmt: skip
BIAS = ("bias", "qkvbias", "attentionbias", "usebias")
CAUSAL = (*ROLES["causal"], "masked", "ismasked", "usemask", "applymask", "domask", "withmask", "addmask", "enablemask",
          "usemasking", "applymasking", "domasking", "autoregressive", "maskfuture", "causalmasking")  # fmt: skip
MASKED = ("mask", "masking", "futuremask")
"""What a class may call whether it is causal, where it takes a boolean for it."""
CONFIG = ("config", "cfg", "args", "conf", "hparams", "params", "modelargs")
"""What a class calls its one parameter that holds all others."""


COUNTED = re.compile("^(number|numbers|num|nb|no|amount|count)of")
"""How a word begins that counts something, beside `num`."""


def is_switch_of_causal(given: inspect.Parameter) -> bool:
    """Say whether a parameter of a class tells whether it is causal."""
    word = plain(given.name)
    return word in CAUSAL or (word in MASKED and isinstance(given.default, bool))


NOT_HEADS = ("dim", "size", "kv", "group", "key", "value", "max", "drop")
"""Parts of a word that is about heads and does not count query heads."""


def about_heads(word: str) -> bool:
    """Say whether a word counts query heads, as `nb_of_heads` does."""
    return "head" in word and not any(part in word for part in NOT_HEADS)


@dataclass(frozen=True)
class Sizes:
    """What a module is made of: x of `width` numbers, `heads` of `size`, `shared` key/value heads, seed and dropout.

    `causal` is True where a class that is told whether it is causal is to be so; None leaves it as it is, and
    `scaled` that its scores are to be scaled, where it has a switch for that. `scale_set`: a field of a configuration,
    and which power of the size of a head it is given. `words`: the arguments of its class in brackets, where they can
    be written. `switched`: the switches that were given another value than their own default, unasked.
    """

    width: int
    heads: int
    size: int
    shared: int
    seed: int = 0
    bias: bool = True
    dropout: float = 0.0
    causal: bool | None = None
    scaled: bool = True
    scale_set: tuple[str, float] | None = None
    words: str = field(default="", compare=False)
    switched: str = field(default="", compare=False)

    def value(self, name: str) -> Any:
        """Return what a parameter or field of that name is given, or None where nobody knows it."""
        if self.scale_set is not None and name == self.scale_set[0]:
            power = self.scale_set[1]
            return self.size if power == 1 else self.size**power
        word = COUNTED.sub("num", plain(name))
        meanings: tuple[tuple[tuple[str, ...], Any], ...] = (
            (HEADS, self.heads), (SHARED, self.shared), (SIZE, self.size), (WIDTH, self.width),
            (INNER, self.heads * self.size), (LENGTH, ROOM), (DROPOUT, self.dropout), (BIAS, self.bias),
            (("batchfirst",), True), (CAUSAL, self.causal),
        )  # fmt: skip
        known = next((value for words, value in meanings if word in words), None)
        return self.by_parts(word) if known is None else known

    def by_parts(self, word: str) -> int | None:
        """Return what a word of several parts is given, such as `nb_of_heads`."""
        if word.endswith(("base", "theta")):  # of which angles are powers
            return None
        if about_heads(word):
            return self.heads
        if "dim" in word and ("rope" in word or "nope" in word):  # a part of a head is turned, and the other is not
            return self.size // 2
        if word.endswith("lorarank"):
            return self.width
        if "head" in word:
            size = self.size if "dim" in word or "size" in word else None
            return self.shared if "kv" in word or "keyvalue" in word else size
        is_width = word.endswith(("feature", "features")) or any(
            part in word for part in ("model", "embed", "emb", "hidden")
        )
        return self.width if is_width else None


# How many heads a module has: by its own words, by the size of a head, or by which number makes it right


def head_count(
    module: Any, arrays: Mapping[str, Array], told: int | None, right: Callable[[int], bool], name: str
) -> int:
    """Return how many query heads a module has; `right` says whether it is right with so many, `told` is the user's.

    Raises:
        UserError: several numbers may be meant.
    """
    inner = arrays["W_q"].shape[1]
    numbers = {word: value for word, value in whole_numbers(module) if value > 0}
    known = next((value for word, value in numbers.items() if word in HEADS), told)
    if known is not None:
        return known
    shared = arrays["W_k"].shape[1]  # both are cut into heads of one size
    divisors = [count for count in range(1, inner + 1) if inner % count == 0 and shared % (inner // count) == 0]
    spoken = {value for word, value in numbers.items() if about_heads(word) and value in divisors}
    spoken = spoken or {inner // value for word, value in numbers.items() if word in SIZE and inner % value == 0}
    others = [value for value in numbers.values() if value in divisors and value not in (1, inner)]
    tried = next((count for count in dict.fromkeys([*spoken, *others, *divisors]) if right(count)), None)
    if tried is not None or len(spoken) == 1:
        return spoken.pop() if tried is None else tried
    if len(set(others)) > 1:
        raise UserError(
            f"{name}: how many heads it has is not known; say head=N, or call it num_heads in the module: "
            f"{', '.join(sorted(word for word, value in numbers.items() if value in others))} may be meant"
        )
    return others[0] if others else 1


def whole_numbers(module: Any) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers among the attributes of a module, and those of the configuration that it keeps."""
    for word, value in vars(module).items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield plain(word), value
        elif plain(word) in CONFIG:
            fields = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
            yield from (
                (plain(str(field)), number)
                for field, number in fields.items()
                if isinstance(number, int) and not isinstance(number, bool)
            )
