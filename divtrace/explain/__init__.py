"""Words: the only place where English sentences about findings, verdicts and coverage are written."""
