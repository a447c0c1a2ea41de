#!/usr/bin/env python3
"""Shell scripts stop at the first error, and shellcheck finds nothing in them where it is installed."""
import shutil
import subprocess

from tree import refusal, run


def scripts(tree):
    for path in tree.files:
        if "." in path.rsplit("/", 1)[-1] and not path.endswith(".sh"):
            continue
        with open(tree.root / path, "rb") as file:
            first = file.readline()
        if first.startswith(b"#!") and first.rstrip().endswith(b"sh"):
            yield path


def check(tree):
    paths = list(scripts(tree))
    for path in paths:
        if "set -euo pipefail" not in tree.text(path):
            yield refusal(path, 0, "does not say 'set -euo pipefail'")
    if not paths or not shutil.which("shellcheck"):
        print("shellcheck is not installed: only 'set -euo pipefail' was looked for" if paths else "no scripts")
        return
    command = ["shellcheck", "--format=gcc", "--shell=bash", *paths]
    yield from subprocess.run(command, cwd=tree.root, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    run(check)
