#!/usr/bin/env python3
"""Who may include whom: the table of ARCHITECTURE.md, and no circle of files."""
import posixpath
import re

from tree import line_of, refusal, run

# floor: (floors of ours that it may include, headers of others that it may include)
FLOORS = {
    "ipc/base": (set(), set()),
    "ipc": ({"ipc/base"}, {"zmq.h"}),
    "kernels": ({"ipc/base", "kernels/include"}, {"immintrin.h", "cpuid.h"}),
    "kernels/include": ({"ipc/base"}, set()),
    "kernels/cuda": ({"kernels", "ipc/base", "kernels/include"}, {"cuda", "cublas", "mma.h"}),
    "daemon/device": ({"ipc", "ipc/base", "kernels/include"}, set()),
    "daemon/weights": ({"daemon/device", "ipc", "ipc/base", "kernels/include"}, {"jansson.h", "pcre2.h"}),
    "daemon/engine": ({"daemon/weights", "daemon/device", "ipc", "ipc/base", "kernels/include"}, set()),
    "daemon/server": (
        {"daemon/engine", "daemon/weights", "daemon/device", "ipc", "ipc/base", "kernels/include"},
        {"jansson.h", "microhttpd.h", "systemd/", "zmq.h"},
    ),
    "daemon/keeper": ({"ipc/base"}, {"systemd/"}),
    "daemon": ({"daemon/server", "daemon/keeper", "ipc/base"}, set()),
    "client": ({"ipc", "ipc/base", "client/include"}, set()),
    "client/include": (set(), set()),
    "client/examples": ({"client/include"}, {"cuda"}),
    "client/tool": ({"client", "client/include", "ipc", "ipc/base"}, {"jansson.h", "ncurses.h"}),
    "deploy/demo": ({"client/include"}, {"jansson.h"}),
}
ANYTHING = ("tests/",)
# Files that may include a little more than their floor, each for the reason given.
EXCEPTIONS = {
    ("ipc/codec_body.h", "gemmd.pb-c.h"): "the codec is where generated types stop",
    ("ipc/codec_fields.h", "gemmd.pb-c.h"): "the codec is where generated types stop",
}
# Files of a floor, by the start of their path, that may include more headers of others.
WIDER = {
    "daemon/device/device_cuda": {"cuda"},
    "client/device_memory_cuda.c": {"cuda"},
    "client/device_order_cuda.c": {"cuda"},
    "client/driver_cuda.h": {"cuda"},
}
FOREIGN = re.compile(r"^(zmq|jansson|microhttpd|ncurses|pcre2|cmocka|systemd/|protobuf-c/|cuda|cublas|immintrin|cpuid)")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
SEARCHED = ("", "kernels/include", "client/include")


def floor_of(path):
    floors = [floor for floor in FLOORS if path.startswith(floor + "/")]
    return max(floors, key=len, default=None)


def resolve(tree, name):
    """The file of ours that an #include names, or None."""
    for folder in SEARCHED:
        path = posixpath.join(folder, name)
        if path in tree.files:
            return path
    return None


def judge(path, quote, name, target):
    """Why path may not include name, or None."""
    if (path, name) in EXCEPTIONS or path.startswith(ANYTHING):
        return None
    floor = floor_of(path)
    ours, others = FLOORS[floor]
    if target is None:
        if quote == '"':
            return f'includes "{name}", which is no file of this tree; includes are written from the root'
        wider = [name for start, names in WIDER.items() if path.startswith(start) for name in names]
        if FOREIGN.match(name) and not name.startswith((*others, *wider)):
            return f"{floor}/ may not include <{name}>; see the table in ARCHITECTURE.md"
        return None
    target_floor = floor_of(target)
    if target_floor != floor and target_floor not in ours:
        return f"{floor}/ may not include {target}; see the table in ARCHITECTURE.md"
    return None


def module_of(path):
    """x.c, x.h and x_internal.h are one module."""
    return posixpath.splitext(path)[0].removesuffix("_internal")


def circles(edges):
    """Each circle of modules once, as a list, found by depth-first search."""
    done, found = set(), []

    def visit(module, trail):
        if module in trail:
            found.append(trail[trail.index(module) :])
            return
        if module in done:
            return
        for other in sorted(edges.get(module, ())):
            visit(other, trail + [module])
        done.add(module)

    for module in sorted(edges):
        visit(module, [])
    return found


def documented_floors(tree):
    if not tree.has("ARCHITECTURE.md"):
        return set()
    return set(re.findall(r"^\| `([\w/]+)/` \|", tree.text("ARCHITECTURE.md"), re.M))


def check(tree):
    edges = {}
    for path in tree.sources():
        if floor_of(path) is None and not path.startswith(ANYTHING):
            yield refusal(path, 0, "is in a folder that no floor of tests/lint/layers.py covers")
            continue
        text = tree.text(path)
        for match in INCLUDE.finditer(text):
            quote, name = match.groups()
            target = resolve(tree, name)
            reason = judge(path, quote, name, target)
            if reason:
                yield refusal(path, line_of(text, match.start()), reason)
            if target and module_of(target) != module_of(path):
                edges.setdefault(module_of(path), set()).add(module_of(target))
    for circle in circles(edges):
        yield refusal(circle[0], 0, "is in a circle of files: " + " -> ".join(circle + circle[:1]))
    for floor in documented_floors(tree) - set(FLOORS) - {"proto", "tests"}:
        yield refusal("ARCHITECTURE.md", 0, f"lists {floor}/, which tests/lint/layers.py does not know")


if __name__ == "__main__":
    run(check)
