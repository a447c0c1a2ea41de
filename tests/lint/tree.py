"""What the lints share: the files of ours under a root, their text without comments, and refusals.

A lint is a module with check(tree), which yields refusals, and a call of run() at its end. It takes the
root of the tree as its argument, so that selftest.py can point it at a tree with a planted violation.
"""
import os
import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
NOT_OURS = {".git", "build", "__pycache__"}
SKIPPED = 77  # the exit code that ctest counts as skipped


class Tree:
    """The files under a root: those that git tracks, or all of them where there is no git."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.files = sorted(path for path in self._list() if (self.root / path).is_file())

    def _list(self):
        if (self.root / ".git").exists():
            command = ["git", "-c", f"safe.directory={self.root}", "-C", str(self.root), "ls-files", "-z"]
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]
        found = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name not in NOT_OURS]
            found += [str((pathlib.Path(folder) / name).relative_to(self.root)) for name in names]
        return found

    def matching(self, *suffixes):
        return [path for path in self.files if path.endswith(suffixes)]

    def sources(self):
        """Our own C and CUDA sources and headers."""
        return self.matching(".c", ".h", ".cu", ".cuh")

    def text(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def has(self, path):
        return (self.root / path).is_file()


def refusal(path, line, reason):
    return f"{path}:{line}: {reason}" if line else f"{path}: {reason}"


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def blank(match):
    """As many lines as were there, so that line numbers stay true."""
    return " " + "\n" * match.group().count("\n")


def without_comments(text):
    """C text with comments blanked and the contents of string literals removed."""
    pattern = r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"

    def replace(match):
        token = match.group()
        return blank(match) if token.startswith("/") else token[0] + token[0]

    return re.sub(pattern, replace, text, flags=re.S)


def argument_text(text, offset):
    """What stands between the parenthesis at offset and its partner."""
    depth = 0
    for i in range(offset, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return text[offset + 1 : i]
    return text[offset + 1 :]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def run(check):
    """Check the tree named on the command line, or this one; print each refusal; exit 1 if any."""
    tree = Tree(sys.argv[1] if len(sys.argv) > 1 else REPOSITORY)
    refusals = sorted(set(check(tree)))
    for line in refusals:
        print(line)
    print(f"{len(refusals)} refused in {len(tree.files)} files")
    sys.exit(1 if refusals else 0)
