"""Layers of attention with a known truth, written as many people write them: a kind of them to a file."""
