#!/usr/bin/env python3
"""House rules that a pattern can check; each row says why it is one."""
import re

from tree import argument_text, line_of, refusal, run, without_comments

# (pattern, reason): refused in C outside tests/, comments and strings aside.
IN_C = [
    (r"(?<!\w)assert\s*\(", "raw assert: use GD_ASSERT, which stays on in release"),
    (r"(?<!\w)v?sprintf\s*\(", "sprintf does not know the size of its buffer: use snprintf"),
    (r"(?<!\w)(?:strcpy|strcat|gets|strtok)\s*\(", "writes or reads past bounds: use a sized call"),
    (r"(?<!\w)ato(?:i|l|ll|f)\s*\(", "atoi cannot fail: use a parser that can"),
    (r"(?<!\w)return\s+-1\s*;", "-1 says nothing: return a negative errno or a status with a reason"),
    (r"(?<![\w.>])accept\s*\(", "accept leaves the fd open across exec: use accept4 with SOCK_CLOEXEC"),
    (r"(?<!\w)epoll_create\s*\(", "leaves the fd open across exec: use epoll_create1 with EPOLL_CLOEXEC"),
    (r"(?<!\w)pipe\s*\(", "leaves the fds open across exec: use pipe2 with O_CLOEXEC"),
    (r"(?<!\w)dup\s*\(", "leaves the fd open across exec: use fcntl with F_DUPFD_CLOEXEC"),
    (r"(?<!\w)F_DUPFD(?!_CLOEXEC)\b", "leaves the fd open across exec: use F_DUPFD_CLOEXEC"),
]
# (call, flag): each such call must name the flag.
WITH_FLAG = [
    ("socket", "SOCK_CLOEXEC"),
    ("socketpair", "SOCK_CLOEXEC"),
    ("accept4", "SOCK_CLOEXEC"),
    ("open", "O_CLOEXEC"),
    ("openat", "O_CLOEXEC"),
    ("pipe2", "O_CLOEXEC"),
    ("memfd_create", "MFD_CLOEXEC"),
    ("eventfd", "EFD_CLOEXEC"),
    ("epoll_create1", "EPOLL_CLOEXEC"),
    ("timerfd_create", "TFD_CLOEXEC"),
    ("signalfd", "SFD_CLOEXEC"),
]
# (pattern, reason): refused in every text file.
ANYWHERE = [
    (r"\b(?:TODO|FIXME|XXX)\b(?!\s*\(?#\d)", "unfinished work without an issue number"),
    (r"(?<![\w.$}{/*-])/(?:home|root|work|Users|mnt)/", "an absolute path of somebody's machine"),
    # The namespace of SVG is a name that every reader of it knows by heart, and no host is asked.
    (r"(?<![\w.@-])(?!www\.w3\.org/2000/svg\b)(?:[a-z0-9-]+\.)+(?:org|com|io|net)(?![\w.(-])", "a host name: the tree names none"),
]
IN_CMAKE = [(r"\bGLOB(?:_RECURSE)?\b", "CMake lists are explicit: a glob hides what is built")]
WRONG_WORDS = {"fast", "new", "optimized", "optimised", "util", "utils", "manager", "misc"}
TEXT = (".c", ".h", ".py", ".md", ".txt", ".cmake", ".proto", ".in", ".conf", ".map", ".1", ".5", ".8")
SCRIPTS = ("tests/run", "tests/gpu/run", ".ci/run", "deploy/quickstart", "deploy/install-deps", "deploy/monitoring/textfile")
NAMES_THEM = ("tests/lint/", "CONTRIBUTING.md")  # these say what is refused


# A call that has to look as libc's does: (file, piece of the refusal).
AS_LIBC = [
    ("daemon/server/accept_guard.c", "'return -1;'"),
    ("daemon/server/accept_guard.c", "'accept('"),
]


def matches(rules, path, text):
    for pattern, reason in rules:
        for match in re.finditer(pattern, text):
            yield refusal(path, line_of(text, match.start()), f"'{match.group().strip()}': {reason}")


def calls_without_flag(path, code):
    """Calls on one of WITH_FLAG's rows without its flag; a declaration of such a name is no call."""
    for call, flag in WITH_FLAG:
        for match in re.finditer(rf"(?<![\w.>]){call}\s*\(", code):
            arguments = argument_text(code, match.end() - 1)
            is_declaration = re.search(r"\b(?:int|void|struct|char)\b", arguments)
            if "," in arguments and flag not in arguments and not is_declaration:
                yield refusal(path, line_of(code, match.start()), f"{call}() without {flag}: every fd is CLOEXEC")


CONFLICT = re.compile(r"^(?:<{7}|>{7}) ", re.M)


def wrong_words(path):
    stem = path.rsplit("/", 1)[-1].split(".")[0]
    for word in set(re.split(r"[-_]", stem)) & WRONG_WORDS:
        yield refusal(path, 0, f"'{word}' in a file's name says nothing of its subject")


def check(tree):
    for path in tree.files:
        yield from wrong_words(path)
        if path.endswith(TEXT) or path in SCRIPTS:
            for match in CONFLICT.finditer(tree.text(path)):
                yield refusal(path, line_of(tree.text(path), match.start()), "a merge conflict was committed")
        if path.startswith(NAMES_THEM) or not (path.endswith(TEXT) or path in SCRIPTS):
            continue
        text = tree.text(path)
        yield from matches(ANYWHERE, path, text)
        if path.endswith((".c", ".h")) and not path.startswith("tests/"):
            code = without_comments(text)
            for line in matches(IN_C, path, code):
                if not any(path == file and piece in line for file, piece in AS_LIBC):
                    yield line
            yield from calls_without_flag(path, code)
        if path.endswith((".cmake", "CMakeLists.txt")):
            yield from matches(IN_CMAKE, path, re.sub(r"#[^\n]*", "", text))


if __name__ == "__main__":
    run(check)
