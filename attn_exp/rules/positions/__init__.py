"""The position rules, one per file, found by file name; a position rule encodes the positions of tokens."""
