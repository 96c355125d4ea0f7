"""Bind a class, object or factory to a `Layer` called with named arrays; uses name tables, not search."""
