"""The sieve: streams the ranks of a replica side by side and lets everything that agrees pass.

What remains are suspects: requests of which some value differs, some invariant may break or some slot is contested, and
steps in which the ranks fell out of step. Only those are loaded, for the walk (`divtrace.walk`) to judge exactly. The
sieve may suspect too much, never too little.
"""
