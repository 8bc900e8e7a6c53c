"""Alignment: which records of which ranks speak of the same event, and in which order events stand."""
