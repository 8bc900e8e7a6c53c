"""The walk over the aligned events of a replica: what differs, what breaks, what follows from what."""
