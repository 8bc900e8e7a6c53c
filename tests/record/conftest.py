"""What tests of the recorder start from."""

from __future__ import annotations

import os

import pytest

from divtrace.record import report as warnings_said


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the caller's, and no warning said before."""
    for name in list(os.environ):
        if name.startswith("DIVTRACE_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(warnings_said, "_said", set())
