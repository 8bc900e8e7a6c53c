"""The formats of a report: one module each, listed here once."""

from __future__ import annotations

from divtrace.output.base import DEFAULT_OPTIONS, Output, OutputOptions

OUTPUTS: dict[str, Output] = {
    "text": Output("text", "for people, at the width of the terminal", "divtrace.output.text"),
    "json": Output("json", "the whole report, divtrace.report/1", "divtrace.output.json_report"),
    "markdown": Output("markdown", "for the summary of a CI job, or an issue", "divtrace.output.markdown"),
    "github": Output("github", "annotations of GitHub Actions, as workflow commands", "divtrace.output.github"),
    "junit": Output("junit", "JUnit XML, a case per request", "divtrace.output.junit"),
}
"""Every format by its name."""

__all__ = ["DEFAULT_OPTIONS", "OUTPUTS", "Output", "OutputOptions"]
