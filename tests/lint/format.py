#!/usr/bin/env python3
"""clang-format 14 decides how C looks."""
import re
import shutil
import subprocess

from tree import refusal, run, skip

LOCATION = re.compile(r"^(.*?):(\d+):\d+: (?:error|warning): (.*)$")


def formatter():
    for name in ("clang-format-14", "clang-format"):
        if shutil.which(name):
            return name
    return skip("clang-format is not installed; deploy/install-deps test brings it")


def check(tree):
    program = formatter()
    files = tree.sources()
    if not files:
        return
    command = [program, "--dry-run", "-Werror", "--style=file", *files]
    result = subprocess.run(command, cwd=tree.root, capture_output=True, text=True)
    lines = set()
    for line in result.stderr.splitlines():
        match = LOCATION.match(line)
        if match:
            lines.add((match.group(1), match.group(2)))
    for path, line in lines:
        yield refusal(path, line, f"is not as clang-format would have it; run: {program} -i {path}")
    if result.returncode != 0 and not lines:
        yield refusal(".clang-format", 0, f"{program} failed: {result.stderr.strip()[:200]}")


if __name__ == "__main__":
    run(check)
