"""Runs on disk: writing, finding and opening them."""
