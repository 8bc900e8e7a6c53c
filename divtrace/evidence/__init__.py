"""What people already have beside the traces: flight-recorder dumps, RAS snapshots, logs. Read offline, without torch."""
