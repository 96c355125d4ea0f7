"""From somebody's class, object or factory to a layer that can be called with named arrays: tables, no search."""
