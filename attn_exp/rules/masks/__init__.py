"""The masks, one per file, found by file name; a mask determines which keys each query may attend to."""
