"""The input of a run: tokens, embeddings, projections and heads.

`build` makes the one `Problem` that all variants share. It starts from x and projections, or from q, k and v, or from
weights and v. `sources/` holds one source of x per file, `files/` the file formats. Each array is drawn from a
random stream of its own, named after it; for documents that draw from one legacy stream, the YAML gives the order.
Whatever a document lacks has no effect: W_o is then the identity, and biases are zero.
"""
