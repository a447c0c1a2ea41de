#!/usr/bin/env python3
"""What the code has, the pages have: options, wire messages; files that pages and comments name exist; man pages can be
set; and the schema has no cycles."""
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess

from tree import refusal, run

CONFIG = "daemon/server/config_options.c"
CONFIG_PAGE = "deploy/gemmd.conf"
MAN_PAGE = re.compile(r"(?:^|/)gemmd\.conf\.5(?:\.in)?$")
SCHEMA = "proto/gemmd.proto"
PROTOCOL = "proto/PROTOCOL.md"
SCALARS = {"double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "string", "bytes"}


def options(text):
    return re.findall(r"^\s*ROW\(\w+,\s*(\w+)", text, re.M)


def messages(text):
    """Message name to the set of message names that its fields have as types."""
    bare = re.sub(r"//[^\n]*", "", text)
    found = {}
    for match in re.finditer(r"\bmessage\s+(\w+)\s*\{", bare):
        depth, end = 1, match.end()
        while depth and end < len(bare):
            depth += {"{": 1, "}": -1}.get(bare[end], 0)
            end += 1
        types = re.findall(r"(\w+)\s+\w+\s*=\s*\d+", bare[match.end() : end])
        found[match.group(1)] = set(types) - SCALARS
    return found


def cycle_from(name, uses, trail=()):
    """A trail of messages that comes back to one of them, or None."""
    if name in trail:
        return trail[trail.index(name) :] + (name,)
    found = (cycle_from(other, uses, trail + (name,)) for other in sorted(uses.get(name, ())))
    return next((cycle for cycle in found if cycle), None)


def check_options(tree):
    names = options(tree.text(CONFIG))
    if not names:
        yield refusal(CONFIG, 0, "no option was found in its table; this lint no longer understands it")
    man_pages = [path for path in tree.files if MAN_PAGE.search(path)]
    if not man_pages:
        yield refusal(CONFIG, 0, "has options and no man page gemmd.conf.5 describes them")
    for page in [CONFIG_PAGE] + man_pages:
        if not tree.has(page):
            yield refusal(page, 0, "is missing")
            continue
        text = tree.text(page).replace("\\-", "-").replace("\\_", "_")
        for name in names:
            if not re.search(rf"\b(?:{name}|{name.replace('_', '-')})\b", text):
                yield refusal(page, 0, f"says nothing of the option {name} of {CONFIG}")


def check_messages(tree):
    uses = messages(tree.text(SCHEMA))
    for name in uses:
        trail = cycle_from(name, uses)
        if trail:
            yield refusal(SCHEMA, 0, "has a cycle, so a peer could nest without end: " + " -> ".join(trail))
    if not tree.has(PROTOCOL):
        yield refusal(PROTOCOL, 0, f"is missing; it has an entry for each message of {SCHEMA}")
        return
    page = tree.text(PROTOCOL)
    for name in uses:
        # A verb goes by its field in Request: `weight_list` is the message WeightList.
        field = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
        if not re.search(rf"\b{name}\b|^\| `{field}` \|", page, re.M):
            yield refusal(PROTOCOL, 0, f"says nothing of the message {name} of {SCHEMA}")


def check_man_pages(tree):
    """man warns of lines that it cannot break or fill, and of macros that it does not know."""
    if not shutil.which("man"):
        print("man is not installed: its warnings were not looked at")
        return
    environment = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    for path in tree.files:
        if re.search(r"(?:^|/)man/[^/]+\.[1-8]$", path):
            command = ["man", "--warnings", "-l", tree.root / path]
            said = subprocess.run(command, capture_output=True, text=True, env=environment).stderr
            for line in said.splitlines():
                yield refusal(path, 0, line)


def folders(files):
    """Every folder that a file lies in, at any depth."""
    return {str(parent) for path in files for parent in pathlib.PurePath(path).parents} - {"."}


def expanded(word):
    """a{b,c} is ab and ac."""
    match = re.search(r"\{([^{}]*)\}", word)
    if not match:
        return [word]
    return [path for part in match[1].split(",") for path in expanded(word[: match.start()] + part + word[match.end() :])]


def expanded_words(pattern, line):
    return [path for word in pattern.findall(line) for path in expanded(word)]


def check_paths(tree):
    """What begins with a folder of the root is a file, a folder or a pattern of some, from there or from beside the page."""
    known = set(tree.files) | folders(tree.files)
    tops = "|".join(sorted({path.split("/")[0] for path in tree.files if "/" in path}))
    path = re.compile(rf"(?<![\w./$}}<>-])((?:{tops})/[\w./*{{}},-]*[\w*}}])")
    for page in tree.matching(".md", ".c", ".h", ".cu", ".cuh"):
        for number, line in enumerate(tree.text(page).splitlines(), 1):
            for word in expanded_words(path, line):
                beside = os.path.normpath(os.path.join(os.path.dirname(page), word))
                if not any(fnmatch.filter(known, place + end) for place in (word, beside) for end in ("", ".h")):
                    yield refusal(page, number, f"names {word}, which is not in the tree")


def check(tree):
    yield from check_paths(tree)
    yield from check_man_pages(tree)
    if tree.has(CONFIG):
        yield from check_options(tree)
    if tree.has(SCHEMA):
        yield from check_messages(tree)


if __name__ == "__main__":
    run(check)
