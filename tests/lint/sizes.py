#!/usr/bin/env python3
"""Functions of at most 80 lines, nine in ten under 60; files of at most 600 lines.

A function over 80 lines needs a comment just above it that says "long because"; so does the opening
comment of a file over 600.
"""
import json
import re
import shutil
import statistics
import subprocess

from tree import refusal, run, skip

FUNCTION_MAX, NINE_IN_TEN_MAX, FILE_MAX = 80, 60, 600
EXCUSE = re.compile(r"long because", re.I)
CTAGS = ["ctags", "--output-format=json", "--fields=+ne", "--languages=C", "--langmap=C:.c.h.cu.cuh", "--kinds-C=f", "-f", "-"]


def functions(tree, paths):
    """(path, name, first line, length) of every function, as ctags sees them."""
    if not shutil.which("ctags"):
        skip("ctags is not installed; deploy/install-deps test brings it")
    output = subprocess.run([*CTAGS, *paths], cwd=tree.root, check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        tag = json.loads(line)
        if tag.get("_type") == "tag" and "end" in tag:
            yield tag["path"], tag["name"], tag["line"], tag["end"] - tag["line"] + 1


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def check(tree):
    paths = tree.sources()
    if not paths:
        return
    lengths = []
    for path, name, line, length in functions(tree, paths):
        lengths.append(length)
        above = "\n".join(tree.text(path).splitlines()[max(0, line - 8) : line])
        if length > FUNCTION_MAX and not EXCUSE.search(above):
            reason = f"{name}() has {length} lines; over {FUNCTION_MAX} needs a comment 'long because ...'"
            yield refusal(path, line, reason)
    for path in paths:
        n_lines = tree.text(path).count("\n")
        if n_lines > FILE_MAX and not EXCUSE.search(tree.text(path)[:3000]):
            reason = f"has {n_lines} lines; over {FILE_MAX} needs 'long because ...' in its opening comment"
            yield refusal(path, 0, reason)
    if not lengths:
        return
    median, ninth, longest = statistics.median(lengths), percentile(lengths, 0.9), max(lengths)
    print(f"{len(lengths)} functions: median {median:g} lines, nine in ten up to {ninth}, longest {longest}")
    # A handful of functions has no distribution to speak of.
    if len(lengths) >= 50 and ninth >= NINE_IN_TEN_MAX:
        yield refusal(".", 0, f"one function in ten has {ninth} lines or more; {NINE_IN_TEN_MAX} is too many")


if __name__ == "__main__":
    run(check)
