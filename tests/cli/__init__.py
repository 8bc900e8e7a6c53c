"""Tests of the command line, and what they share."""
