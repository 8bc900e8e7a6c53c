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


def test_importing_the_recorder_takes_little_time() -> None:
    # The least of several runs, in user and system time, so that the load of the machine does not decide.
    script = """
import resource
def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
before = spent()
import divtrace.record
print(spent() - before)
"""
    assert min(float(finish(child(script))[0]) for _ in range(5)) < 0.030
