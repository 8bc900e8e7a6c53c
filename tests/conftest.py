"""Shared fixtures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from notation import write_trace

from divtrace.report.model import Report


@pytest.fixture
def report_on(tmp_path: Path) -> Callable[[str], Report]:
    """Analyses a trace that is written in the notation."""

    def report(text: str) -> Report:
        from divtrace import analyze

        return analyze([write_trace(tmp_path / "trace", text)])

    return report
