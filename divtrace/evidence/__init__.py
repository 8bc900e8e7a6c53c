"""Evidence beside the traces: flight-recorder dumps, RAS snapshots and logs, read offline and without torch."""
