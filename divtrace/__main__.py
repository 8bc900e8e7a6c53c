"""`python -m divtrace`."""

from __future__ import annotations

from divtrace.cli import process

if __name__ == "__main__":
    process()
