"""Reading traces: `divtrace.trace.load.load` turns files and folders into the records of every rank, in order."""
