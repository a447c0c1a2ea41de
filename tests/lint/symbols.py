#!/usr/bin/env python3
"""What libgemmd.so exports, what libgemmd.map lists and what gemmd.h declares are one set."""
import os
import pathlib
import re
import subprocess

import prototypes
from tree import refusal, run

HEADER = "client/include/gemmd.h"
MAP = "client/libgemmd.map"


def mapped(text):
    """The symbols of all nodes of the version script, without the catch-all."""
    bare = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return set(re.findall(r"^\s*(\w+);", bare, re.M))


def exported(library):
    command = ["nm", "-D", "--defined-only", library]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in output.splitlines()]
    return {row[2].split("@")[0] for row in rows if row[1] in "TDBRVWi"}


def compare(left_name, left, right_name, right):
    for symbol in left - right:
        yield refusal(left_name, 0, f"has {symbol}, and {right_name} does not")
    for symbol in right - left:
        yield refusal(right_name, 0, f"has {symbol}, and {left_name} does not")


def check(tree):
    declared = {name for name, _, _ in prototypes.prototypes(tree.text(HEADER))}
    listed = mapped(tree.text(MAP))
    yield from compare(HEADER, declared, MAP, listed)
    build = os.environ.get("GEMMD_BUILD_DIR")
    library = pathlib.Path(build or "") / "client" / "libgemmd.so"
    if not build or not library.exists():
        yield refusal(MAP, 0, f"cannot be compared with the library: no {library}; set GEMMD_BUILD_DIR")
        return
    yield from compare("libgemmd.so", exported(library), MAP, listed)


if __name__ == "__main__":
    run(check)
