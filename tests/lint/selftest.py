#!/usr/bin/env python3
"""Plant one violation of each rule in a small clean tree, and see that its lint refuses it, saying why."""
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

CLEAN = {
    ".clang-format": (HERE.parents[1] / ".clang-format").read_text(),
    "ipc/ring.h": "/* ring_init() - an empty ring. */\nint ring_init(void);\n",
    "ipc/ring.c": '#include "ipc/ring.h"\n\nint ring_init(void)\n{\n    return 0;\n}\n',
    "tests/unit/test-ring.c": "int main(void)\n{\n    return 0;\n}\n",
    "kernels/include/gk/gk.h": "/* gk_version() - of the library. */\nint gk_version(void);\n",
    "client/include/gemmd.h": "/* gemmd_open() - connect. */\nint gemmd_open(void);\n",
    "client/libgemmd.map": "GEMMD_0.1 {\nglobal:\n    gemmd_open;\nlocal:\n    *;\n};\n",
    "daemon/server/config_options.c": "static const int options[] = {\n    ROW(TEXT, socket_dir),\n};\n",
    "daemon/CMakeLists.txt": "add_library(x a.c)\n",
    "deploy/gemmd.conf": "# socket_dir =\n",
    "deploy/man/gemmd.conf.5": "socket_dir\n",
    "proto/gemmd.proto": "message A { uint64 x = 1; }\nmessage B { A a = 1; }\n",
    "proto/PROTOCOL.md": "A, B\n",
    "tests/lint/untested.txt": "daemon/server/config_options.c: tests/unit, its rows are read by every test\n",
    "tests/run": "#!/usr/bin/env bash\nset -euo pipefail\n",
}

LONG = "void f(void)\n{\n" + "    g();\n" * 90 + "}\n"
C = "ipc/planted.c"
ROWS = "tests/lint/untested.txt"

# (lint, file, its text, a piece of the refusal)
PLANTED = [
    ("layers", C, '#include "kernels/include/gk/gk.h"\n', "may not include"),
    ("layers", C, "#include <jansson.h>\n", "may not include"),
    ("layers", C, '#include "nowhere.h"\n', "no file of this tree"),
    ("layers", "attic/a.c", "int x;\n", "no floor"),
    ("layers", "ipc/ring.h", '#include "ipc/loop.h"\n', "circle"),
    ("layers", "ARCHITECTURE.md", "| `attic/` | old things |\n", "does not know"),
    ("format", C, "int   x ;\n", "clang-format"),
    ("prototypes", "ipc/planted.h", "int bare(void);\n", "no comment"),
    ("prototypes", "ipc/planted.h", "/* far away */\n\nint bare(void);\n", "no comment"),
    ("prototypes", "client/include/gemmd.h", "/* connects */\nint gemmd_open(void);\n", "describes it by name"),
    ("symbols", "client/libgemmd.map", "X {\nglobal:\n    gemmd_shut;\n};\n", "gemmd_shut"),
    ("symbols", "client/include/gemmd.h", "/* gone */\n", "gemmd_open"),
    ("house", C, "void f(void)\n{\n    assert(1);\n}\n", "raw assert"),
    ("house", C, 'void f(char *t)\n{\n    sprintf(t, "");\n}\n', "snprintf"),
    ("house", C, "void f(char *t, char *u)\n{\n    strcpy(t, u);\n}\n", "sized call"),
    ("house", C, "int f(void)\n{\n    return -1;\n}\n", "negative errno"),
    ("house", C, "int f(void)\n{\n    return socket(AF_UNIX, SOCK_STREAM, 0);\n}\n", "SOCK_CLOEXEC"),
    ("house", C, 'int f(void)\n{\n    return open("x", O_RDONLY);\n}\n', "O_CLOEXEC"),
    ("house", C, 'int f(void)\n{\n    return memfd_create("x", 0);\n}\n', "MFD_CLOEXEC"),
    ("house", C, "int f(void)\n{\n    return eventfd(0, 0);\n}\n", "EFD_CLOEXEC"),
    ("house", C, "int f(int s)\n{\n    return accept(s, 0, 0);\n}\n", "accept4"),
    ("house", C, "/* TODO: finish */\n", "unfinished"),
    ("house", C, "/* see /home/me/notes */\n", "absolute path"),
    ("house", "README.md", "get it from example.com\n", "host name"),
    ("house", "daemon/CMakeLists.txt", "file(GLOB all *.c)\n", "glob"),
    ("house", "README.md", "text\n" + "<" * 7 + " HEAD\n", "merge conflict"),
    ("house", "ipc/ring_util.c", "int x;\n", "'util'"),
    ("sizes", C, LONG, "has 93 lines"),
    ("sizes", C, "int x;\n" * 601, "has 601 lines"),
    ("documents", "deploy/gemmd.conf", "# other =\n", "socket_dir"),
    ("documents", "deploy/man/gemmd.conf.5", "other\n", "socket_dir"),
    ("documents", "proto/PROTOCOL.md", "A\n", "message B"),
    ("documents", "proto/PROTOCOL.md", "A and `b` in passing\n", "message B"),
    ("documents", "README.md", "see `ipc/ring.h`, `ipc/{ring,rings}.c`\n", "ipc/rings.c"),
    ("documents", C, "/* as ipc/rinf.h has it */\n", "ipc/rinf.h"),
    ("documents", "proto/gemmd.proto", "message A { B b = 1; }\nmessage B { A a = 1; }\n", "cycle"),
    ("coverage", C, "int x;\n", "neither"),
    ("coverage", ROWS, "daemon/server/config_options.c: tests/none, gone\n", "no such file"),
    ("coverage", ROWS, "ipc/gone.c: tests/unit, gone\ndaemon/server/config_options.c: tests/unit, x\n", "is gone"),
    ("shell", "tests/run", "#!/usr/bin/env bash\necho\n", "pipefail"),
]


def plant(root, files):
    for path, text in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def build_library(root):
    """A libgemmd.so that exports gemmd_open, for the symbols lint to look at."""
    (root / "build/client").mkdir(parents=True)
    command = ["cc", "-shared", "-x", "c", "-", "-o", str(root / "build/client/libgemmd.so")]
    subprocess.run(command, input="int gemmd_open(void) { return 0; }", text=True, check=True)


def lint(name, root):
    environment = {**os.environ, "GEMMD_BUILD_DIR": str(root / "build")}
    command = [sys.executable, "-B", str(HERE / f"{name}.py"), str(root)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


def expect(name, files, code, piece):
    """Whether the lint ends with code and says piece on the clean tree with these files planted."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        plant(root, {**CLEAN, **files})
        if name == "symbols":
            build_library(root)
        result = lint(name, root)
    is_good = result.returncode == code and piece in result.stdout
    if not is_good:
        print(f"{name} with {list(files)}: expected exit {code} saying '{piece}', got exit {result.returncode}:")
        print(result.stdout + result.stderr)
    return is_good


def main():
    results = [expect(name, {}, 0, "0 refused") for name in sorted({row[0] for row in PLANTED})]
    for name, path, text, piece in PLANTED:
        files = {path: text}
        if piece == "circle":
            files["ipc/loop.h"] = '#include "ipc/ring.h"\n'
        results.append(expect(name, files, 1, piece))
    print(f"{sum(results)} of {len(results)} as expected")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
