"""How the size of command buffers changes peak and step time on a GPU: ``python -m tinygpt.savings.in_flight``.

MLX reads the settings once, so each gets a process of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinygpt.environment import describe

# Operations and "MB" a command buffer, and from where on evaluation waits for what is queued (``benchmark.LIMITS``).
# The first is MLX's default on compute capability 9.0. MLX counts elements of inputs there, not bytes, so that 50 "MB"
# are 200 MB in float32.
SETTINGS = (
    (100, 1000, "never"),
    (100, 10, "never"),
    (100, 10, "always"),
    (5, 50, "always"),
    (100, 10, "estimate"),
    (100, 50, "estimate"),
    (100, 1000, "estimate"),
)
ROWS = ("tiny 8x128", "huge 8x256", "huge 4x1024", "mega 2x1024", "behemoth 4x1024")


def run_setting(setting: tuple[int, int, str], *, rows: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """Return the benchmark's records of some rows, plain and checkpointed, under one setting."""
    operations, megabytes, limit = setting
    variables = {"MLX_MAX_OPS_PER_BUFFER": str(operations), "MLX_MAX_MB_PER_BUFFER": str(megabytes)}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "tinygpt.savings.benchmark", "--wrappers", "plain", "tinygpt"]
        command += ["--clip-norm", "1", "--rounds", str(rounds), "--json", str(report), "--rows", *rows]
        command += ["--policies", "all", "selective", "--limit", limit]
        subprocess.run(command, env=os.environ | variables, check=True)
        records: list[dict[str, Any]] = json.loads(report.read_text())["records"]
    return [{"operations": operations, "megabytes": megabytes, **record} for record in records]


def main(argv: Sequence[str] | None = None) -> int:
    """Run every setting and write all records."""
    parser = argparse.ArgumentParser(prog="python -m tinygpt.savings.in_flight", description=__doc__)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), metavar="ROW")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, metavar="N", help="leave out the first N settings")
    parser.add_argument("--json", type=Path, metavar="FILE", required=True)
    arguments = parser.parse_args(argv)
    records: list[dict[str, Any]] = []
    for setting in SETTINGS[arguments.first :]:
        print("{} operations, {} MB, waiting: {}".format(*setting), flush=True)
        records += run_setting(setting, rows=arguments.rows, rounds=arguments.rounds)
        arguments.json.write_text(json.dumps({"environment": describe(), "records": records}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
