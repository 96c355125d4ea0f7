"""The normalizers, one per file, found by file name: they turn a row of masked logits into weights."""
