"""The oracle: attention with scalar loops, derived apart from the forms."""
