#!/usr/bin/env python3
"""The live page in a real browser: it draws what the daemon does, and its script fails nowhere. GEMMD_SCREENSHOT names a
file to keep the picture in. Skipped where no chromium is installed."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

import prometheus
import running

SKIPPED = 77
LOOK_MSEC = 4000  # of the page's time: some of its updates
DEMO_SECONDS = 15  # for the browser to start twice meanwhile


def look(port, picture):
    """The document as the browser has it after LOOK_MSEC, and what its console says."""
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1600"]
        command += [f"--user-data-dir={profile}", "--enable-logging=stderr", f"--virtual-time-budget={LOOK_MSEC}"]
        url = f"http://127.0.0.1:{port}/"
        shot = [*command, f"--screenshot={picture}", url]
        subprocess.run(shot, check=True, capture_output=True, timeout=120)
        result = subprocess.run([*command, "--dump-dom", url], check=True, capture_output=True, text=True, timeout=120)
    return result.stdout, [line for line in result.stderr.splitlines() if "CONSOLE" in line]


def check(port, picture):
    document, console = look(port, picture)
    assert not console, console
    for wanted in (">serving<", ">minilm<", ">host<", ">gemmd-demo<", "<polyline points="):
        assert wanted in document, f"the page shows no {wanted!r}: {document}"
    assert os.path.getsize(picture) > 20000, "the picture is all but empty"


def main():
    if not shutil.which("chromium"):
        print("chromium is not installed")
        sys.exit(SKIPPED)
    port = prometheus.free_port()
    with running.daemon(f"status_port = {port}\n") as folder, tempfile.TemporaryDirectory() as scratch:
        command = [running.BUILD / "deploy" / "demo" / "gemmd-demo", "--socket-dir", folder, "--seconds", str(DEMO_SECONDS)]
        clients = subprocess.Popen([*command, "minilm", running.CHECKPOINT], stdout=subprocess.DEVNULL)
        try:
            time.sleep(2)  # for its references
            check(port, os.environ.get("GEMMD_SCREENSHOT", f"{scratch}/page.png"))
        finally:
            clients.wait(timeout=60)


if __name__ == "__main__":
    main()
