#!/usr/bin/env python3
"""A build fails at a kernel whose registers spill, and says which (cmake/check-kernels): seen with kernels that do, and one that does not.
What is allowed in cmake/kernels-allowed.txt is what kernels of this build have, to the byte."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]

# More values at a time than registers.
SPILLS = """
__global__ void __launch_bounds__(1024, 2) crowded(const float *x, float *y)
{
    float v[64];
#pragma unroll
    for (int i = 0; i < 64; i++) { v[i] = x[i * 1024 + threadIdx.x]; }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; i++) { y[i * 1024 + threadIdx.x] = v[i] * v[63 - i]; }
}
"""
STACK = """
__global__ void indexed(const int *x, int *y)
{
    int v[256], sum = 0;
#pragma unroll 1
    for (int i = 0; i < 256; i++) { v[i] = sum = sum * 3 + x[i]; }
    y[threadIdx.x] = v[x[threadIdx.x] & 255];
}
"""
CLEAN = "__global__ void plain(float *y) { y[threadIdx.x] = 1; }\n"
WAITS = ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
         "a reason in the function 'waiting'\n")

# (source, what is allowed, a piece of the refusal; None: it passes)
CASES = [
    (SPILLS, "", r"registers spill, [1-9]\d* bytes \(sm_80, crowded\)"),
    (SPILLS, "sm_80 4096 ^crowded$", None),
    (SPILLS, "sm_90a 4096 ^crowded$", "registers spill"),
    (SPILLS, "sm_80 8 ^crowded$", "registers spill"),
    (SPILLS, "# sm_80 4096 ^crowded$", "registers spill"),
    (STACK, "", r"a stack of 1024 bytes \(sm_80, indexed\)"),
    (CLEAN, "", None),
]


BUILD = pathlib.Path(os.environ.get("GEMMD_BUILD_DIR", ROOT / "build/test"))
ALLOWED = ROOT / "cmake/kernels-allowed.txt"


def compiler():
    cache = BUILD / "CMakeCache.txt"
    found = re.search(r"^CUDAToolkit_NVCC_EXECUTABLE:[A-Z]+=(.+)$", cache.read_text() if cache.exists() else "", re.M)
    return found and pathlib.Path(found[1]).exists() and found[1]


def compile_and_check(folder, allowed, command):
    """The exit code, and what is said, of the step that fails, or of the last one."""
    (folder / "allowed").write_text(allowed + "\n")
    log = folder / "log"
    done = subprocess.run([ROOT / "cmake/compile-kernels", log, *command], capture_output=True, text=True)
    if done.returncode == 0:
        check = [ROOT / "cmake/check-kernels", folder / "allowed", folder / "report", log]
        done = subprocess.run(check, capture_output=True, text=True)
    return done.returncode, done.stderr


def refusals(folder, nvcc):
    for source, allowed, refusal in CASES:
        (folder / "a.cu").write_text(source)
        command = [nvcc, "-arch=sm_80", "-Xptxas=-v", "-cubin", "-o", folder / "a.cubin", folder / "a.cu"]
        code, said = compile_and_check(folder, allowed, command)
        is_as_told = code == 0 if refusal is None else code == 1 and re.search(refusal, said)
        if not is_as_told:
            yield f"allowed '{allowed}', wanted {refusal or 'nothing'}: exit code {code}, {said}"
        report = folder / "report"
        if report.exists() != (refusal is None):
            yield f"allowed '{allowed}', wanted {refusal or 'nothing'}: a report {'is' if report.exists() else 'is not'} there"
        if report.exists() and not report.read_text().startswith("sm_80 "):
            yield f"the report has no line: {report.read_text()}"
    code, said = compile_and_check(folder, "", ["sh", "-c", f"printf '%s' \"{WAITS}\" >&2"])
    if code != 1 or "products wait for one another: a reason" not in said:
        yield f"products that wait: exit code {code}, {said}"
    code, said = compile_and_check(folder, "", ["sh", "-c", "echo broken >&2; exit 3"])
    if code != 3 or "broken" not in said or (folder / "log").exists():
        yield f"a compiler that fails: exit code {code}, {said}"


def kernels_built():
    """(architecture, bytes of stack, name) of each."""
    for report in BUILD.glob("**/*.cu.o.kernels"):
        for line in report.read_text().splitlines():
            arch, _, stack, _, _, name = line.split(" ", 5)
            yield arch, int(stack), name


def idle_allowances():
    """Lines of what is allowed that no kernel needs, or not so much of."""
    kernels = list(kernels_built())
    for line in ALLOWED.read_text().splitlines():
        if not kernels or not line or line.startswith("#"):
            continue
        arch, allowed, name = line.split(" ", 2)
        most = max((stack for arch_of, stack, name_of in kernels if arch_of == arch and re.search(name, name_of)), default=0)
        if most != int(allowed):
            yield f"{ALLOWED.name}: '{line}', but {most} bytes are what any of these kernels has"


if __name__ == "__main__":
    nvcc_found = compiler()
    if not nvcc_found:
        print("this build has no nvcc")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        failed = [*refusals(pathlib.Path(scratch), nvcc_found), *idle_allowances()]
    print("\n".join(failed) or f"{len(CASES) + 2} compilations were judged as they should be")
    sys.exit(bool(failed))
