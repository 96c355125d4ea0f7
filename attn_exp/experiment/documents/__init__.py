"""Printed figures of documents, and what they say of a run."""
