"""Serving processes pay for imports."""

from __future__ import annotations

from pathlib import Path

from record.reading import child, finish

HEAVY = ["polars", "pyarrow", "typer", "rich", "numpy", "torch", "msgspec", "zstandard"]


def test_the_recorder_imports_only_the_standard_library() -> None:
    script = f"""
import sys
before = set(sys.modules)
import divtrace.record
new = {{name.partition(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names)
print(sorted(new), [name for name in {HEAVY!r} if name in sys.modules])
"""
    out, _ = finish(child(script))
    assert out.strip() == "['divtrace'] []"


def test_a_recorder_at_work_adds_msgspec_and_nothing_else(tmp_path: Path) -> None:
    script = """
import sys
before = set(sys.modules)
from divtrace.record import Recorder
with Recorder(sys.argv[1], rank=0) as recorder:
    recorder.event("accept", "greedy", correct_len=1)
    recorder.event("accept", "greedy", correct_len="1")
    recorder.dump()
new = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
# msgspec looks for it and does without.
new.discard("typing_extensions")
print(sorted(new))
"""
    out, _ = finish(child(script, str(tmp_path)))
    assert out.strip() == "['divtrace', 'msgspec']"


def test_importing_the_recorder_loads_few_modules() -> None:
    # How long that takes is measured in benchmarks/record.py.
    script = """
import sys
before = set(sys.modules)
import divtrace.record
new = set(sys.modules) - before
print(len(new), [name for name in ("dataclasses", "inspect", "logging", "json", "asyncio") if name in new])
"""
    count, _, costly = finish(child(script))[0].strip().partition(" ")
    assert int(count) < 50
    assert costly == "[]"
