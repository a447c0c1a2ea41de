#!/usr/bin/env python3
"""Every .c of ours has a unit test of its name, or a row in untested.txt that says what tests it.

A row reads `path: tests/the/test.c, reason`; either side may be a folder, ending in "/". Rows whose source
or test is gone are refused too.
"""
from tree import refusal, run

ROWS = "tests/lint/untested.txt"
TESTED = ("ipc/", "kernels/", "daemon/", "client/", "deploy/")


def listed(tree):
    """path -> (test, line number)"""
    found = {}
    if not tree.has(ROWS):
        return found
    for i, line in enumerate(tree.text(ROWS).splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            path, _, rest = line.partition(":")
            found[path.strip()] = (rest.split(",")[0].strip(), i)
    return found


def stems_with_tests(tree):
    names = [path.rsplit("/", 1)[-1] for path in tree.matching(".c") if path.startswith("tests/")]
    return {name[len("test-") : -len(".c")].replace("-", "_") for name in names if name.startswith("test-")}


def is_listed(path, rows):
    return path in rows or any(row.endswith("/") and path.startswith(row) for row in rows)


def check(tree):
    rows = listed(tree)
    tested = stems_with_tests(tree)
    for path in tree.matching(".c"):
        stem = path.rsplit("/", 1)[-1][: -len(".c")].replace("-", "_")
        if path.startswith(TESTED) and stem not in tested and not is_listed(path, rows):
            yield refusal(path, 0, f"has neither a test-{stem}.c nor a row in {ROWS} that says what tests it")
    for path, (test, line) in rows.items():
        if not any(file == path or file.startswith(path) and path.endswith("/") for file in tree.files):
            yield refusal(ROWS, line, f"names {path}, which is gone")
        elif not any(file == test or file.startswith(test.rstrip("/") + "/") for file in tree.files):
            yield refusal(ROWS, line, f"says that {test} tests {path}, and there is no such file or folder")


if __name__ == "__main__":
    run(check)
