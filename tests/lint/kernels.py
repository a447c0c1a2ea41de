#!/usr/bin/env python3
"""A build fails at a kernel whose registers spill, and says which (cmake/check-kernels): seen with kernels that do, and one that does not."""
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


def compiler():
    cache = pathlib.Path(os.environ.get("GEMMD_BUILD_DIR", ROOT / "build/test")) / "CMakeCache.txt"
    found = re.search(r"^CUDAToolkit_NVCC_EXECUTABLE:[A-Z]+=(.+)$", cache.read_text() if cache.exists() else "", re.M)
    return found and pathlib.Path(found[1]).exists() and found[1]


def run_check(folder, allowed, command):
    (folder / "allowed").write_text(allowed + "\n")
    checked = [ROOT / "cmake/check-kernels", folder / "allowed", folder / "report", *command]
    return subprocess.run(checked, capture_output=True, text=True)


def refusals(folder, nvcc):
    for source, allowed, refusal in CASES:
        (folder / "a.cu").write_text(source)
        command = [nvcc, "-arch=sm_80", "-Xptxas=-v", "-cubin", "-o", folder / "a.cubin", folder / "a.cu"]
        done = run_check(folder, allowed, command)
        is_as_told = done.returncode == 0 if refusal is None else done.returncode == 1 and re.search(refusal, done.stderr)
        if not is_as_told:
            yield f"allowed '{allowed}', wanted {refusal or 'nothing'}: exit code {done.returncode}, {done.stderr}"
        if not (folder / "report").read_text().startswith("sm_80 "):
            yield f"the report has no line: {(folder / 'report').read_text()}"
    done = run_check(folder, "", ["sh", "-c", f"printf '%s' \"{WAITS}\" >&2"])
    if done.returncode != 1 or "products wait for one another: a reason" not in done.stderr:
        yield f"products that wait: exit code {done.returncode}, {done.stderr}"
    done = run_check(folder, "", ["sh", "-c", "echo broken >&2; exit 3"])
    if done.returncode != 3 or "broken" not in done.stderr:
        yield f"a compiler that fails: exit code {done.returncode}, {done.stderr}"


if __name__ == "__main__":
    nvcc_found = compiler()
    if not nvcc_found:
        print("this build has no nvcc")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as scratch:
        failed = list(refusals(pathlib.Path(scratch), nvcc_found))
    print("\n".join(failed) or f"{len(CASES) + 2} compilations were judged as they should be")
    sys.exit(bool(failed))
