#!/usr/bin/env python3
"""gemmctl doctor against things that are wrong on purpose, and what the daemon says of GPUs that a sandbox hides (T49):
a driver that is loaded and whose nodes are not there is made by mounts of our own."""
import json
import os
import shutil
import subprocess
import sys

import running

GEMMCTL = running.BUILD / "client" / "tool" / "gemmctl"
GEMMD = running.BUILD / "daemon" / "gemmd"
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def doctor(folder, before=()):
    result = subprocess.run([*before, GEMMCTL, "--socket-dir", folder, "doctor", "--json"], capture_output=True, text=True)
    document = json.loads(result.stdout)
    assert result.returncode == (5 if document["faults"] else 0), result
    for finding in document["findings"]:
        assert (finding["state"] == "ok") == (finding["mend"] == ""), f"a mend for each fault, and for no other: {finding}"
    return document


def found(document, subject, state, text):
    return any(
        finding["subject"] == subject and finding["state"] == state and text in finding["text"]
        for finding in document["findings"]
    )


def check_daemon(folder):
    document = doctor(folder)
    assert document["faults"] == 0, document
    assert found(document, "access", "ok", "can be used by this user"), document
    assert found(document, "ipc", "ok", "a child process got shared memory of this one in"), document
    assert found(document, "ipc", "ok", "memory of host can be shared with the daemon"), document
    assert found(document, "daemon", "ok", "owns host"), document


def check_strangers(folder):
    """Another user, who is in no group of the sockets', is told what is missing."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("not root: another user's view was not looked at")
        return
    os.chmod(folder, 0o755)
    for path in [GEMMCTL.parents[i] for i in range(3)] + [folder.parent]:
        if not os.stat(path).st_mode & 0o001:
            print(f"{path} is closed to others: another user's view was not looked at")
            return
    document = doctor(folder, AS_NOBODY)
    assert found(document, "access", "fault", f"{folder}/session is of root:root, mode 0600"), document
    os.chmod(folder, 0o700)
    document = doctor(folder, AS_NOBODY)
    closed = [finding for finding in document["findings"] if finding["text"].startswith(f"{folder} is of root:root, mode 0700")]
    assert [finding["mend"].startswith(f"chmod 0750 {folder}") for finding in closed] == [True], document


def in_namespace(script):
    """A shell of its own mounts, in which /proc/driver/nvidia says that a driver is loaded."""
    prelude = (
        "mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia && "
        "echo 'NVRM version: made up' >/proc/driver/nvidia/version || exit 77\n"
    )
    return subprocess.run(["unshare", "-rm", "sh", "-c", prelude + script], capture_output=True, text=True, timeout=60)


def check_hidden_gpus(folder):
    if os.path.exists("/dev/nvidiactl"):
        print("this machine has GPUs: hidden ones were not looked at")
        return
    result = in_namespace(f"{GEMMCTL} --socket-dir {folder} doctor --json")
    if result.returncode in (1, 77):
        print("no mount namespace may be made here: hidden GPUs were not looked at")
        return
    document = json.loads(result.stdout)
    assert found(document, "nodes", "fault", "/dev/nvidiactl: No such file or directory"), document
    assert found(document, "nodes", "fault", "/dev/nvidia-uvm: No such file or directory"), document
    if b"/dev/nvidia-uvm" not in GEMMD.read_bytes():
        print("this build has no CUDA: what its daemon says of hidden GPUs was not looked at")
        return
    for device in ("auto", "cuda:0"):
        result = in_namespace(f"{GEMMD} --socket-dir {folder}/hidden --device {device}")
        assert result.returncode == 4 and "/dev/nvidiactl: No such file" in result.stderr, (device, result)
    result = in_namespace(f"timeout 2 {GEMMD} --socket-dir {folder}/hidden --device host")
    assert "serves on" in result.stderr, result
    assert "no --config was given" in result.stderr, result


def check_nobody(folder):
    document = doctor(folder / "nothing")
    assert document["faults"] == 0 and found(document, "daemon", "warning", "no daemon answers"), document


def main():
    with running.daemon() as folder:
        check_daemon(folder)
        check_strangers(folder)
        check_hidden_gpus(folder)
        check_nobody(folder)


if __name__ == "__main__":
    sys.exit(main())
