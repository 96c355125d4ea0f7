"""The input of a run: tokens, embeddings, projections and heads.

`build` makes one `Problem` that all variants share, from whatever stage it starts at: x and projections, or q, k and
v, or weights and v. Sources of x live one to a file in `sources/`, formats of files in `files/`. Each array is drawn
from a random stream of its own, named after it; documents that draw from one legacy stream say in their YAML in which
order. What a document lacks changes nothing: W_o is then the identity, and biases are zero.
"""
