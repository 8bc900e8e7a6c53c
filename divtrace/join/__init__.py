"""Traces and other evidence brought together: dumps and logs beside traces, or alone."""
