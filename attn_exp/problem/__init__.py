"""The input of a run: tokens, embeddings, projections and heads.

`build` makes the one `Problem` that all variants share. It starts from x and projections, or from q, k and v, or from
weights and v. `sources/` holds one source of x per file, `files/` the file formats.

By default, each array is drawn from its own random stream, named after the array. A notebook draws all arrays from one
generator; for such a document, the YAML names the generator and the order. With `projections=identity`, an array that
the document does not define has no effect: a matrix is the identity, and a bias is zero.
"""
