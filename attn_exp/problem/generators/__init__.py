"""The generators of libraries, one to a file: what each would draw after its seed, number by number, in NumPy alone.

A notebook that says `torch.manual_seed(123)` has drawn numbers that nothing but its calls decides. The same calls, in
the same order, draw the same numbers here, without that library. `_bits` and `_cephes` hold the arithmetic of 32-bit
floats that this takes.
"""

from __future__ import annotations

from attn_exp import registry
from attn_exp.errors import UserError, unknown
from attn_exp.problem.generators.generator import Generator, Start, Stream

NAMES: tuple[str, ...] = registry.names(__path__, without=("generator",))


def find(name: str) -> Generator:
    """Return the generator of that name.

    Raises:
        UserError: there is none.
    """
    if name not in NAMES:
        raise UserError(unknown(name, ("streams", *NAMES), "generator"))
    return registry.constant(__name__, name, Generator)


def begin(name: str, start: Start, key: str = "seed") -> Stream:
    """Return a generator's stream as it is right after its seed; `key` is what the user calls that seed.

    Raises:
        UserError: no such generator, or a seed that it does not take.
    """
    generator = find(name)
    if not generator.least <= start.seed or (generator.most is not None and start.seed > generator.most):
        most = "" if generator.most is None else f" to {generator.most}"
        expected = f"a whole number from {generator.least}{most}" if most else f"at least {generator.least}"
        raise UserError(f"{key}={start.seed}: expected {expected} for generator={name}")
    return generator.begin(start)
