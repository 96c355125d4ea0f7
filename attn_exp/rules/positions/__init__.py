"""The position rules, one per file, found by file name: how a model encodes token positions."""
