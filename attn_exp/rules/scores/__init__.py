"""The score rules, one per file, found by file name: they change logits."""
