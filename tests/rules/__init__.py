"""Tests of the rules and their pages."""
