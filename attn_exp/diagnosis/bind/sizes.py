"""Choose the sizes of a layer: values for settings such as `d_model`, by name."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from attn_exp.diagnosis.asking.names import ROLES, every_parameter, plain, read_names, source_of
from attn_exp.diagnosis.asking.request import Request

NAMES = read_names("""
h: nh
g: numkvgroups nkvgroups kvgroups nkv numkv numquerygroups multiquerygroupnum
groups: numgroups ngroups groups
d: dk dv dq dkv dqk dhead dkey dvalue dkeys dvalues hd keydim valuedim qkvdim projdim attndim querypreattnscalar \
    keyvaluedim
side: dimq dimk dimv querysize keysize valuesize qsize ksize vsize qdim kdim vdim dimkey dimvalue dimquery
m: nembd nembed din dout dimin dimout nchannels numchannels emb hidden hid nhid numhiddens dimcontext nstate nx \
    numfeatures demb dmod d m c e k ninp filters inchannel outchannel nhidden ch inch outch dhid dhidn dinput \
    doutput dinner dx neurons nfilters nin nout nmodel dimkv dh dtoken ind outd dimfeedforward
r: qkropeheaddim ropeheaddim ropedim rotarydim dimrope drope roped
room: blocksize nctx maxlen maxseqlen seqlen contextlength maxpositionembeddings ctxlen maxseqlength npositions \
    maxlength sequencelength seqlength numtokens contextsize contextwindow maxpositions maxsequencelength ctxsize \
    maxt tgtlen targetlen qlen querylen srclen ntokens
bias: bias qkvbias usebias attentionbias withbias projbias
causal: masked ismasked usemask usemasking maskflag withmask autoregressive unidirectional
evaluates: deterministic inference
trains: train training
dropout: p rate keeprate
""")
NAMES |= {
    letter: ROLES[role] + NAMES[letter] for letter, role in (("h", "heads"), ("g", "kv_heads"), ("causal", "causal"))
}
"""Kinds of settings (the letters of `Layer.sizes`, and others), with common names for each."""
LETTER_OF = {name: letter for letter, names in reversed(NAMES.items()) for name in names}
WIDTHS = {"dmodel", "embeddim", "hiddensize"}
FIXED = {
    "layeridx": 0, "layeridxs": 0, "idx": 0, "index": 0, "layer": 0, "layerid": 0, "layernumber": 1, "i": 0, "depth": 0,
    "nlayer": 1, "nlayers": 1, "numlayers": 1, "numhiddenlayers": 1, "batchsize": 8, "maxbatchsize": 8, "bs": 8,
    "device": "cpu", "dtype": None, "seed": 0, "name": "attention", "eps": 1e-5, "layernormeps": 1e-5, "normeps": 1e-5,
    "rmsnormeps": 1e-5, "layernormepsilon": 1e-5, "epsilon": 1e-5, "ropetheta": 1e4, "theta": 1e4, "base": 1e4,
    "ropebase": 1e4, "slidingwindow": None, "slidingwindowsize": None, "ropescaling": None, "vocabsize": 11,
    "windowsize": 4, "window": 4, "clipqkv": None, "attentiontype": "full_attention", "layertypes": ["full_attention"],
    "attnimplementation": "eager", "scaleattnweights": True, "partialrotaryfactor": 1.0, "batchfirst": True,
    "kernelsize": 3, "numclasses": 11,
    "quant": False, "quantize": False, "srratio": 1, "reductionratio": 1,
}  # fmt: skip
"""Values for required settings that are not sizes."""
CONFIG = re.compile("(conf|params|opts?|options)$|.*(config|cfg|args|hparams)$")
"""A pattern for names of configuration objects, in lowercase without underscores."""
ROOM = 40
"""Number of tokens for which layers build their masks and tables."""


@dataclass(frozen=True)
class Sizes:
    """Sizes to build a layer with: `h` heads of size `d`, width `m`, `g` key/value heads.

    `told` are the letters of sizes fixed by the user or the file; these override the constructor's defaults.
    `guesses` means that arguments of unknown meaning get a value too.
    """

    h: int
    d: int
    m: int
    g: int
    dropout: float = 0.0
    causal: bool = False
    told: frozenset[str] = frozenset()
    guesses: bool = False

    def lengths(self) -> dict[str, int]:
        """Return a batch size, numbers of queries and keys, and image sides that differ from all other sizes."""
        taken = {self.h, self.d, self.m, self.g}
        choices = {"b": (2, 3), "t": (5, 9), "s": (7, 11), "y": (3, 7), "x": (4, 5)}
        return {letter: next((one for one in some if one not in taken), some[-1]) for letter, some in choices.items()}


def letter_of(name: str, siblings: Collection[str] = ()) -> str:
    """Return the kind of a setting from its name: a letter of `Layer.sizes`, another key of NAMES, or an empty string.

    `siblings` are all arguments of the same constructor: `dim_k` is a width next to `dim_q`, but not next to `d_model`.
    """
    word = re.sub("^(number|numbers|nb|no|count)(of|(?=heads))", "num", plain(name))
    exact = LETTER_OF.get(word, "")
    if exact == "side":
        others = {plain(one) for one in siblings} & {"dimq", "querysize", "qsize", "qdim", "dimquery", *WIDTHS}
        return "m" if others and not others & WIDTHS else "d"
    return exact or next((letter for pattern, letter in PARTS if re.search(pattern, word)), "")


PARTS = (
    ("drop", "dropout"),
    ("rope|base|theta|scale|talk|maxhead|headtype|^headmask", ""),
    ("(idx|index|layerid|blockid)$", "index"),
    ("max\\w*(len|length|pos|dist|distance|positions|tokens)$|buckets$", "room"),
    ("^(use|is|flash|return|with|log|has|do|apply|output(?!.*(dim|size|channels|features)))", "flag"),
    ("head.*(dim|size|channels|width)|(dim|size).*head", "d"),
    ("(kv|keyvalue|group).*head|head.*(kv|keyvalue|group)", "g"),
    ("head(?!.*norm)", "h"),
    ("^(?!max|n)\\w*(model|embd|embed|embdim|embeddim|hiddensize|hiddendim|features|channels|width)$", "m"),
    ("patch|kernel|window|chunk|block|vocab|batch|seq|ffn|mlp|rank|code|bucket|ima?ge?|stride|pool|cache|file", ""),
    ("^(?!max)\\w*(dims?|dimensions?|size|feats?|units|planes|embeddings)$", "m"),
)
"""Patterns of names, and the kind of setting that each means; the first match wins."""


def value_of(name: str, sizes: Sizes, siblings: Collection[str] = ()) -> Any:
    word = plain(name)
    known = {
        "r": sizes.d // 2, "h": sizes.h, "g": sizes.g, "groups": sizes.g, "d": sizes.d, "m": sizes.m, "room": ROOM,
        "bias": True, "causal": sizes.causal, "evaluates": True, "trains": False, "dropout": sizes.dropout,
        "flag": False, "index": 0,
    }  # fmt: skip
    letter = letter_of(name, siblings)
    scales = {"temperature": sizes.d**0.5} | dict.fromkeys(("scale", "scaling", "softmaxscale"), sizes.d**-0.5)
    return FIXED[word] if word in FIXED else scales.get(word, known.get(letter, ...))


def instead_of_default(given: inspect.Parameter, sizes: Sizes, siblings: Collection[str]) -> Any:
    """Return the value that replaces a default, or `...` to keep the default.

    Sizes that must fit, dropout and causal flags are replaced, and so is None if the user set that size. A number of
    key/value heads stays if it divides the number of heads.
    """
    letter, default, word = letter_of(given.name, siblings), given.default, plain(given.name)
    is_size = letter in ("h", "g", "d", "m") and type(default) is int and (len(word) > 1 or letter == "h")
    fits = letter == "g" and is_size and "g" not in sizes.told and 0 < default < sizes.h and sizes.h % default == 0
    is_named = letter in ("h", "g", "d") and letter in sizes.told and default is None and word not in ("kdim", "vdim")
    is_state = default is None and (letter in ("evaluates", "trains") or word in ("layeridx", "layerid")
                                    or (letter == "room" and sizes.causal))  # fmt: skip
    is_state |= word == "maxbatchsize" and default == 1
    is_masked = isinstance(default, bool) and sizes.causal and (letter == "causal" or word == "mask")
    is_replaced = (
        (is_size and not fits) or is_named or is_state or (letter == "dropout" and type(default) in (int, float))
    )
    return True if is_masked else value_of(given.name, sizes, siblings) if is_replaced else ...


def sizes_to_try(owner: Any, request: Request) -> Iterator[Sizes]:
    """Yield sizes to build a class with: head size 6 with and without dropout, head size 8, and its default head count.

    For a class that rotates queries and keys, the head sizes are 8 and 16.
    """
    defaults = {letter_of(one.name): one.default for one in every_parameter(owner, owner.__name__)}
    file = {letter: size for letter, size in sizes_of_file(owner).items() if letter not in defaults}
    h = request.head or file.get("h", 4)
    named = {"h": request.head, "d": request.size, "g": request.kv_head}
    told = frozenset({*file, *(letter for letter, size in named.items() if size)})
    turns = request.positions or re.search(r"(?i)rotary|(?<![a-z])rope|freqs", source_of(owner))
    first = request.size or file.get("d", 0) or file.get("m", 0) // h
    usual = [first, first] if first else [8, 16] if turns or h == 6 else [6, 8]
    tries = [(h, usual[0], 0.3), (h, usual[0], 0.0), (h, usual[1], 0.0)]
    own = defaults.get("h") if not request.head else None
    tries += [(own, max(1, 32 // own), 0.0)] if type(own) is int and own > 0 else []
    for heads, d, dropout in tries:
        yield Sizes(heads, d, file.get("m", heads * d), request.kv_head or heads, dropout, request.is_causal, told)
    d = usual[0]
    yield Sizes(h, d, file.get("m", h * d), request.kv_head or h, 0.0, request.is_causal, told, guesses=True)


def sizes_of_file(owner: Any) -> dict[str, int]:
    module = sys.modules.get(getattr(owner, "__module__", None) or "")
    home = {} if module is None else vars(module)
    space = getattr(inspect.unwrap(owner), "__globals__", home) if callable(owner) else home
    source = source_of(owner)
    numbers = {name: value for name, value in space.items() if type(value) is int and value > 0}
    return {letter_of(name): value for name, value in numbers.items() if letter_of(name) in ("h", "d", "m")
            and re.search(rf"(?<![\w.])\b{name}\b(?!\s*=[^=])", source)}  # fmt: skip


def sizes_of_layer(target: Any, arguments: Mapping[str, Any]) -> dict[str, int]:
    fields = [fields_of(module) for module in modules_of(target)]
    found: dict[str, int] = {}
    for name, value in (pair for one in (arguments, *fields) for pair in settings_of(one).items()):
        letter, word = letter_of(str(name)), plain(str(name))
        is_clear = letter in ("h", "r") or (letter in ("g", "d", "m") and len(word) > 1 and word not in NAMES["side"])
        if type(value) is int and value > 0 and is_clear:
            found.setdefault(letter, value)
    return found


def modules_of(target: Any) -> list[Any]:
    is_torch = any(kind.__module__.startswith("torch.") for kind in type(target).__mro__)
    return list(target.modules()) if is_torch and hasattr(target, "modules") else [target]


def settings_of(fields: Mapping[Any, Any]) -> dict[Any, Any]:
    held_by = (fields_of(value) for name, value in fields.items() if CONFIG.match(plain(str(name))))
    return {name: value for one in (fields, *held_by) for name, value in one.items()}


def fields_of(one: Any) -> dict[Any, Any]:
    return dict(one) if isinstance(one, Mapping) else getattr(one, "__dict__", {})


LIBRARIES = ("builtins", "torch", "flax", "haiku", "equinox", "keras", "jax", "jaxlib", "jaxtyping", "abc", "typing",
             "numpy")  # fmt: skip


def is_of_a_library(kind: Any) -> bool:
    return str(getattr(kind, "__module__", "")).partition(".")[0] in LIBRARIES
