"""Sieving and converting change nothing about what is found."""
