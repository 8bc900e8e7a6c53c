"""`python -m divtrace`."""

from __future__ import annotations

import sys

from divtrace.cli import main

if __name__ == "__main__":
    sys.exit(main())
