#!/usr/bin/env python3
"""gemmctl top: its figures under load, what it says of a daemon that hangs, that was killed, and that was started anew,
and the same in a terminal."""
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import time

import running

GEMMCTL = running.BUILD / "client" / "tool" / "gemmctl"


def top(folder, *arguments):
    command = [GEMMCTL, "--socket-dir", folder, "top", "--once", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def demo(folder, seconds):
    command = [running.BUILD / "deploy" / "demo" / "gemmd-demo", "--socket-dir", folder, "--seconds", str(seconds)]
    return subprocess.Popen([*command, "minilm", running.CHECKPOINT], stdout=subprocess.DEVNULL)


def pid_of(folder):
    """Of the page itself: see struct stats_page."""
    return struct.unpack_from("<Q", (folder / "stats").read_bytes(), 16)[0]


def line(text, start):
    return next(line for line in text.splitlines() if line.startswith(start)).split()


def check_under_load(folder):
    clients = demo(folder, 3)
    time.sleep(1)  # for its references
    for _ in range(100):
        text = top(folder, "--interval", "0.3").stdout
        if float(line(text, "host ")[1]) > 100:
            break
    assert float(line(text, "host ")[1]) > 100 and float(line(text, "minilm")[1]) > 100, text
    assert "WARNING" not in text and "serving" in text and "1 model, 37 weights" in text, text
    assert re.search(r"^host int4 x float +\d", text, re.M), text
    assert clients.wait(timeout=60) == 0


def check_hang(folder):
    """A stopped process, once without work and once with it: something may be in flight then, or not."""
    pid = pid_of(folder)
    os.kill(pid, signal.SIGSTOP)
    try:
        text = top(folder).stdout
        assert "WARNING the main thread has not come round for " in text, text
    finally:
        os.kill(pid, signal.SIGCONT)
    clients = demo(folder, 4)
    time.sleep(2)
    os.kill(pid, signal.SIGSTOP)
    try:
        text = top(folder, "--interval", "2.5").stdout
        in_flight = r"host: \d+ requests in flight, and no launch has ended for "
        assert re.search(f"WARNING ({in_flight}|the main thread has not come round for )", text), text
    finally:
        os.kill(pid, signal.SIGCONT)
    assert clients.wait(timeout=60) == 0


def check_idle(folder):
    time.sleep(2.5)
    text = top(folder).stdout
    assert "WARNING" not in text, text


def in_terminal(folder, keys):
    """What top writes to a terminal of 24 lines until it has read the keys."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(GEMMCTL, [GEMMCTL, "--socket-dir", folder, "top", "--interval", "0.2"])
    output, deadline = b"", time.monotonic() + 20
    while output.count(b"\x1b[H") + output.count(b"host") < 2 and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            output += os.read(terminal, 65536)
    os.write(terminal, keys)
    _, state = os.waitpid(pid, 0)
    os.close(terminal)
    return output.decode(errors="replace"), os.waitstatus_to_exitcode(state)


def check_terminal(folder):
    output, code = in_terminal(folder, b"xq")
    assert code == 0 and "DEVICE" in output and "gemmd" in output, (code, output)


def check_json(folder):
    """--json needs no terminal, and says null of times that nothing took."""
    time.sleep(0.3)
    document = json.loads(top(folder, "--interval", "0.2", "--json").stdout)
    device, model = document["devices"][0], document["models"][0]
    assert document["pid"] == pid_of(folder) and document["warning"] == "", document
    assert device["name"] == "host" and device["requests_per_second"] == 0 and device["queue_p50_usec"] is None, document
    assert model["name"] == "minilm" and model["requests"] > 0 and model["rows_per_second"] == 0, document


def check_usage(folder):
    assert top(folder, "--interval", "0").returncode == 2
    assert top(folder, "word").returncode == 2
    command = [GEMMCTL, "--socket-dir", folder, "top"]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert result.returncode == 2 and "wants a terminal" in result.stderr
    (folder / "empty").mkdir()
    assert top(folder / "empty").returncode == 3


def check_death(folder):
    """A killed daemon's last figures stay readable; the next daemon's are its own."""
    sockets = folder / "second"
    command = [running.BUILD / "daemon" / "gemmd", "--socket-dir", sockets, "--device", "host"]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    running.wait_for(first, [GEMMCTL, "--socket-dir", sockets])
    first.kill()
    first.wait()
    assert f"WARNING process {first.pid} is gone" in top(sockets).stdout
    second = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    running.wait_for(second, [GEMMCTL, "--socket-dir", sockets])
    text = top(sockets).stdout
    assert f"pid {second.pid}" in text and "WARNING" not in text, text
    second.terminate()
    assert second.wait(timeout=30) == 0
    assert top(sockets).returncode == 3, "the figures outlived an orderly end"


def main():
    with running.daemon() as folder:
        check_usage(folder)
        check_under_load(folder)
        check_hang(folder)
        check_idle(folder)
        check_json(folder)
        check_terminal(folder)
        check_death(folder)


if __name__ == "__main__":
    main()
