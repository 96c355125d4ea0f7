"""Bind a class, object or factory to a `Layer`, which takes arrays by role; tables of names determine the roles."""
