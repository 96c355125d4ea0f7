"""The input of a run: tokens, embeddings, projections and heads."""
