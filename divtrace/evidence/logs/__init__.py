"""Log lines: one small module per family of formats, each behind one line of `registry`."""
