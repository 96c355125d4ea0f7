"""How a model knows where a token stands: one way to a file, found by its name."""
