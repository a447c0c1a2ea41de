#!/usr/bin/env python3
"""Every prototype in a header of ours, tests aside, is described by a comment; in gemmd.h, by name as well.

The comment stands at the top of its group (a run of lines without a blank one), at the end of its line, or
elsewhere in the header and names it as "name()". x_finish() and x_free() mean the same everywhere (CONTRIBUTING.md): they need none.
"""
import re

from tree import line_of, refusal, run, without_comments

PUBLIC = "client/include/gemmd.h"
PROTOTYPE = re.compile(r"\b([a-z_]\w*)\s*\((?!\()[^;{}]*?\)\s*(?:[A-Z_]+(?:\([^()]*\))?\s*)*[;{]")
SAME_EVERYWHERE = ("_finish", "_free")
NOT_A_NAME = {"sizeof", "static_assert", "_Static_assert", "__attribute__"}


def lines_only(match):
    return "\n" * match.group().count("\n")


def masked(text):
    """The text with comments, directives and the inside of braces blanked, line for line."""
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif", lines_only, text, flags=re.S | re.M)
    code = without_comments(text)
    code = re.sub(r"^[ \t]*#(?:\\\n|[^\n])*", lines_only, code, flags=re.M)
    out, depth = [], 0
    for char in code:
        depth -= char == "}"
        out.append(char if depth == 0 or char == "\n" else " ")
        depth += char == "{"
    return "".join(out)


def prototypes(text):
    """(name, first line, last line) of each function declared or defined inline; typedefs are none."""
    code = masked(text)
    for match in PROTOTYPE.finditer(code):
        start = max(code.rfind(end, 0, match.start()) for end in ";}")
        is_typedef = code[start + 1 : match.start()].lstrip().startswith("typedef")
        if match.group(1) not in NOT_A_NAME and not is_typedef:
            yield match.group(1), line_of(code, match.start()), line_of(code, match.end() - 1)


def group_has_comment(lines, first, last):
    """Whether a comment stands at the top of the group that holds these lines, or on one of them."""
    top = first - 1
    while top > 0 and lines[top - 1].strip():
        top -= 1
    return any("*/" in text or text.lstrip().startswith("//") for text in lines[top:last])


def check(tree):
    for path in tree.matching(".h"):
        if path.startswith("tests/"):
            continue
        text = tree.text(path)
        lines = text.splitlines()
        for name, line, last in prototypes(text):
            is_named = f"{name}()" in text
            is_grouped = group_has_comment(lines, line, last)
            if path == PUBLIC and not (is_named and is_grouped):
                yield refusal(path, line, f"{name}() is public and no comment on it describes it by name")
            elif not (is_named or is_grouped or name.endswith(SAME_EVERYWHERE)):
                yield refusal(path, line, f"{name}() has no comment on it or at the top of its group")


if __name__ == "__main__":
    run(check)
