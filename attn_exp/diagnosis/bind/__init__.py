"""Bind a class, object or factory to a `Layer` that takes arrays by role, inferred from tables of names."""
