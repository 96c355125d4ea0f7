"""The normalizers, one per file, found by file name; a normalizer turns a row of masked logits into weights."""
