"""The input of a run: tokens, embeddings, projections and heads.

`build` makes one `Problem` that all variants share, from whatever stage it starts at: x and projections, or q, k and
v, or weights and v. `sources/` holds one source of x per file, `files/` the file formats. Each array is drawn from a
random stream of its own, named after it; documents that draw from one legacy stream give the order in their YAML.
Whatever a document lacks has no effect: W_o is then the identity, and biases are zero.
"""
