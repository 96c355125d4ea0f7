"""Variants on one problem: resolved, computed, checked and compared."""
