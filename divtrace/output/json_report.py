"""The whole report as JSON, `divtrace.report/1`."""

from __future__ import annotations

from divtrace.output.base import OutputOptions
from divtrace.output.escape import json_text
from divtrace.report.model import Report, encode


def render(report: Report, _options: OutputOptions) -> str:
    """The report unchanged and uncut; what a terminal would obey is written with the escapes of JSON."""
    return json_text(encode(report).decode())
