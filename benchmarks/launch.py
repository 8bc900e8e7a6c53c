"""Run one command and write what it took, as JSON, to a file descriptor.

    python launch.py DESCRIPTOR COMMAND...

Linux counts the memory of whoever starts a process as memory that the process held. This one is smaller than anything
whose memory is told, whatever the benchmark itself holds.
"""

import json
import os
import sys
import time


def main() -> None:
    descriptor, *command = sys.argv[1:]
    os.set_inheritable(int(descriptor), False)
    began = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, used = os.wait4(child, 0)
    wall = time.perf_counter() - began
    peak = used.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    took = {"cpu": used.ru_utime + used.ru_stime, "wall": wall, "peak": peak}
    took["status"] = os.waitstatus_to_exitcode(status)
    os.write(int(descriptor), json.dumps(took).encode())


if __name__ == "__main__":
    main()
