"""A daemon of the build under test, on a private socket folder, with the checkpoint of tests/data/ loaded."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GEMMD_BUILD_DIR", REPOSITORY / "build" / "test"))
CHECKPOINT = REPOSITORY / "tests" / "data" / "minilm-gptq-4bit"
START_SECONDS = 20


def wait_for(daemon, gemmctl):
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run(gemmctl + ["status"], capture_output=True).returncode != 0:
        if daemon.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the daemon did not answer within {START_SECONDS} s")
        time.sleep(0.05)


@contextlib.contextmanager
def daemon(config="", environment=None, model="minilm"):
    """Its socket folder; the daemon has 'minilm' loaded, and must end with status 0 on SIGTERM.

    config: lines of a configuration file; environment: variables beside this process's own; model: None loads nothing.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        gemmctl = [BUILD / "client" / "tool" / "gemmctl", "--socket-dir", folder]
        (folder / "gemmd.conf").write_text(config)
        command = [BUILD / "daemon" / "gemmd", "--config", folder / "gemmd.conf", "--socket-dir", folder, "--device", "host"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
        try:
            wait_for(process, gemmctl)
            if model:
                subprocess.run(gemmctl + ["load", model, CHECKPOINT], check=True, capture_output=True)
            yield folder
        finally:
            process.terminate()
            status = process.wait(timeout=30)
        if status != 0:
            sys.exit(f"the daemon ended with status {status}")
