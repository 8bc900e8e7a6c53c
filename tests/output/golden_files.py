"""Comparison with the files in `golden/`; with DIVTRACE_UPDATE_GOLDEN=1 they are written instead."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    """Fail, with pytest's difference of the texts, unless the file of this name holds exactly this text."""
    file = FOLDER / name
    if os.environ.get("DIVTRACE_UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8", newline="")
    assert text == file.read_bytes().decode(), f"{file} differs; DIVTRACE_UPDATE_GOLDEN=1 writes it anew"
