#!/usr/bin/env python3
"""The binary interface of libgemmd is the recorded one: SONAME, versioned symbols, prototypes, sizes of structs, offsets
of their fields, values of enums and of plain macros.

The record, tests/data/abi/SONAME.txt, is that of the last release; GEMMD_UPDATE=1 writes it, at a release. What is new
since is free to change; what is gone from it or different breaks programs that are there, and needs another SONAME,
which then has a record of its own.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from tree import REPOSITORY, refusal, skip

HEADER = REPOSITORY / "client" / "include" / "gemmd.h"
LIBRARY = pathlib.Path(os.environ.get("GEMMD_BUILD_DIR", REPOSITORY / "build" / "test")) / "client" / "libgemmd.so"
BODY = re.compile(r"\b(struct|enum) (\w+) \{([^{}]*)\}", re.S)


def text_of_header():
    return re.sub(r"/\*.*?\*/", " ", HEADER.read_text(), flags=re.S)


def fields(body):
    """The names that the declarations of a struct's body declare."""
    for declaration in filter(None, (part.strip() for part in body.split(";"))):
        for declarator in declaration.split(","):
            yield re.search(r"(\w+)(?:\[[^\]]*\])?$", declarator.strip()).group(1)


def printing_program(text):
    lines = []
    for kind, name, body in BODY.findall(text):
        if kind == "enum":
            for value in re.findall(r"(\w+)(?: *=[^,]*)?(?:,|\s*$)", body.strip()):
                lines.append(f'printf("enum %s %s = %d\\n", "{name}", "{value}", (int){value});')
            continue
        lines.append(f'printf("struct %s: %zu bytes\\n", "{name}", sizeof(struct {name}));')
        for field in fields(body):
            member = f"((struct {name} *)0)->{field}"
            lines.append(
                f'printf("struct %s.%s: %zu bytes at %zu\\n", "{name}", "{field}", '
                f"sizeof({member}), offsetof(struct {name}, {field}));"
            )
    for name in re.findall(r"^#define (GEMMD_\w+) +(?:\d+u?|UINT64_MAX)$", text, re.M):
        lines.append(f'printf("macro %s = %llu\\n", "{name}", (unsigned long long){name});')
    return "#include <gemmd.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n"


def printed(text):
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder) / "abi.c", pathlib.Path(folder) / "abi"
        source.write_text(printing_program(text))
        subprocess.run(["cc", "-I", HEADER.parent, source, "-o", program], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


def prototypes(text):
    found = re.findall(r"GEMMD_PUBLIC\s+([^;{}]*?)\s*(?:GEMMD_MUST_CHECK)?\s*;", text)
    return ["call " + re.sub(r"\s+", " ", prototype).replace("( ", "(") for prototype in found]


def symbols():
    output = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], check=True, capture_output=True, text=True).stdout
    return ["symbol " + line.split()[2] for line in output.splitlines() if line.split()[1] in "TDBRVWi"]


def soname():
    output = subprocess.run(["readelf", "-d", LIBRARY], check=True, capture_output=True, text=True).stdout
    return re.search(r"\(SONAME\).*\[(.*)\]", output).group(1)


def size_of(line):
    """(struct, size) of a line that says how large one is; (None, None) for others."""
    match = re.fullmatch(r"struct (\w+): (\d+) bytes", line)
    return match.groups() if match else (None, None)


def broken(record, now):
    """What the record has and the library has not, or has differently."""
    sizes = {name: int(size) for name, size in map(size_of, now) if name}
    for i, line in enumerate(record.read_text().splitlines(), 1):
        name, size = size_of(line)
        has_grown = name and sizes.get(name, 0) >= int(size)  # structs say their size, and may grow at their end
        if line not in now and not has_grown:
            yield refusal(str(record.relative_to(REPOSITORY)), i, f"'{line}' does not hold any more: programs break")


def main():
    if not LIBRARY.exists():
        skip(f"no {LIBRARY}; set GEMMD_BUILD_DIR")
    text = text_of_header()
    now = ["soname " + soname()] + sorted(symbols()) + sorted(prototypes(text)) + printed(text)
    record = REPOSITORY / "tests" / "data" / "abi" / f"{soname()}.txt"
    if os.environ.get("GEMMD_UPDATE"):
        record.write_text("\n".join(now) + "\n")
    if not record.exists():
        sys.exit(f"{record.relative_to(REPOSITORY)} is missing: the SONAME has changed; make it with GEMMD_UPDATE=1")
    refusals = list(broken(record, now))
    n_new = len(set(now) - set(record.read_text().splitlines()))
    print("\n".join(refusals + [f"{len(refusals)} refused of {len(now)}; {n_new} are new since the record"]))
    sys.exit(1 if refusals else 0)


if __name__ == "__main__":
    main()
