"""`python -m divtrace.record doctor`, which needs no more than msgspec."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if sys.argv[1:2] != ["doctor"]:
        sys.stderr.write("usage: python -m divtrace.record doctor [--help]\n")
        sys.exit(2)
    from divtrace.record.doctor import main

    sys.exit(main(sys.argv[2:]))
