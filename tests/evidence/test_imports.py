"""Dumps are read without torch."""

from __future__ import annotations

import subprocess
import sys


def test_nothing_heavy_is_imported_to_read_dumps() -> None:
    code = "import sys, divtrace.evidence.analyse; print(sorted({'torch', 'numpy', 'polars'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
