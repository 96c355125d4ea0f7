"""The masks, one per file, found by file name; a mask determines which places may attend."""
