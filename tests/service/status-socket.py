#!/usr/bin/env python3
"""The status socket: what it serves, when it says ready, and that nobody can hold the daemon up through it."""
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import exposition
import running

USER_MAX = 8  # HTTP_USER_MAX
IDLE_SECONDS, LIFE_SECONDS = 5, 15
READY_AGE_MSEC = 1000
SESSIONS_MAX, ADMIN_SESSIONS = 2, 4  # CONFIG_ADMIN_SESSIONS
ANSWER_MSEC = 5000


def gemmctl(folder, *arguments):
    command = [running.BUILD / "client" / "tool" / "gemmctl", "--socket-dir", folder, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def raw(folder):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(60)
    connection.connect(str(folder / "status"))
    return connection


def sessions(folder, n):
    """Connections that say nothing, not even HELLO: charged as soon as they are accepted."""
    connections = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(n)]
    for connection in connections:
        connection.connect(str(folder / "session"))
    return connections


def keys_of(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


def check_schema(document):
    """Each key of the document is in the protocol page's table of it."""
    page = (running.REPOSITORY / "proto" / "PROTOCOL.md").read_text()
    section = page.split("\n## Status document\n")[1].split("\n## ")[0]
    documented = {word for span in re.findall(r"`([^`]*)`", section) for word in re.split(r"[ ,.\[\]]+", span)}
    missing = set(keys_of(document)) - documented
    assert not missing, f"proto/PROTOCOL.md does not describe {sorted(missing)} of the status document"


def check_documents(folder):
    status, text, headers = exposition.get(folder, "/status")
    document = json.loads(text)
    assert status == 200 and headers["Content-Type"] == "application/json"
    asked = json.loads(gemmctl(folder, "status", "--json").stdout)
    assert document.keys() == asked.keys() and document["pid"] == asked["pid"]
    check_schema(asked)
    gemmd = running.BUILD / "daemon" / "gemmd"
    notes = subprocess.run(["readelf", "-n", gemmd], capture_output=True, text=True).stdout
    build_id = re.search(r"Build ID: (\w+)", notes).group(1)
    said = subprocess.run([gemmd, "--version"], capture_output=True, text=True).stdout
    assert said == f"gemmd {document['version']}, build {build_id}\n", said
    assert exposition.value(exposition.scrape(folder), "gemmd_build", version=document["version"], build_id=build_id) == 1
    worker = document["devices"][0]["worker"]
    assert len(worker["queue_times"]) == len(document["time_bounds_seconds"]) + 1
    assert exposition.get(folder, "/healthz")[:2] == (200, "ok\n")
    status, page, headers = exposition.get(folder, "/")
    assert status == 200 and page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    source = (running.REPOSITORY / "daemon" / "server" / "page.html").read_text()
    assert page == source, "the page is not the one of the source"
    for outside in ("http:", "https:", "src=", "@import", "innerHTML"):
        assert outside not in source, f"the page has {outside}"
    assert exposition.get(folder, "/nothing")[0] == 404
    status, text, headers = exposition.get(folder, "/status", method="HEAD")
    assert (status, text) == (200, "") and int(headers["Content-Length"]) > 1000
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
        assert exposition.get(folder, "/", method=method)[0] == 405, method


def check_modes(folder):
    for name in ("status", "stats"):
        mode = stat.S_IMODE((folder / name).stat().st_mode)
        assert mode == {"status": 0o600, "stats": 0o400}[name], f"{name} has mode {mode:o}"


def check_loopback(port):
    def ask(host):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(100).split(b"\r\n")[0].split()[1].decode()

    assert [ask(host) for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}")] == ["200"] * 3
    assert [ask(host) for host in ("some.site:80", "localhost.some.site", "", "127.0.0.1.some.site")] == ["403"] * 4


def check_ready_by_age(folder):
    """What was served lately is enough: no launch but the first."""
    for _ in range(3):
        assert exposition.get(folder, "/readyz")[:2] == (200, "ready\n")
        ready = gemmctl(folder, "ready")
        assert (ready.returncode, ready.stdout) == (0, "ready\n")
    assert exposition.value(exposition.scrape(folder), "gemmd_launches") == 1
    assert gemmctl(folder, "drain").returncode == 0
    assert exposition.get(folder, "/readyz")[:2] == (503, "not ready: draining\n")
    ready = gemmctl(folder, "ready")
    assert (ready.returncode, ready.stderr) == (4, "not ready: draining\n")
    assert json.loads(gemmctl(folder, "ready", "--json").stdout) == {"ready": False, "text": "not ready: draining"}
    assert gemmctl(folder, "ready", "--alive").returncode == 0, "draining is alive"
    assert gemmctl(folder / "nowhere", "ready").returncode == 3
    assert gemmctl(folder / "nowhere", "ready", "--alive").returncode == 3
    assert gemmctl(folder, "ready", "--well").returncode == 2


def states_of(folder, n, uid):
    """The states of that user's sessions, as soon as there are n of them: one that has ended is counted until the
    workers have let go of it, which is later than its client's end."""
    states, deadline = None, time.monotonic() + 30
    while (states is None or len(states) != n) and time.monotonic() < deadline:
        document = json.loads(exposition.get(folder, "/status")[1])
        states = [session["state"] for session in document["sessions"] if session["uid"] == uid]
    return states


def check_full(folder, limit):
    """Clients that hold all sessions leave some to administrators, of whom this user is one, and liveness to everybody."""
    assert states_of(folder, 0, os.geteuid()) == []  # the gemmctl that loaded the model has gone
    held = sessions(folder, SESSIONS_MAX + ADMIN_SESSIONS - 1)
    administrator = gemmctl(folder, "status")
    assert administrator.returncode == 0, f"an administrator is kept out: {administrator}"
    assert states_of(folder, len(held), os.geteuid()) == ["new"] * len(held)  # gemmctl's has gone
    held += sessions(folder, 1)
    refused = gemmctl(folder, "status")
    assert refused.returncode == 4 and "QUOTA" in refused.stderr, refused
    alive = gemmctl(folder, "ready", "--alive")
    assert (alive.returncode, alive.stdout) == (0, "ok\n"), alive
    assert json.loads(gemmctl(folder, "ready", "--alive", "--json").stdout) == {"alive": True, "text": "ok"}
    finding = json.loads(gemmctl(folder, "doctor", "--json").stdout)["findings"][-1]
    assert limit in finding["text"] and "raise that limit" in finding["mend"], finding
    if os.geteuid() == 0:
        check_full_for_others(folder, SESSIONS_MAX if limit == "user_sessions_max" else 0)
    for connection in held:
        connection.close()


def check_full_for_others(folder, n_allowed):
    """Who is no administrator gets as many as there are, and not one more; the daemon judges by who connects."""
    os.chmod(folder, 0o711)
    os.chmod(folder / "session", 0o666)
    os.seteuid(65534)
    try:
        others = sessions(folder, n_allowed + 1)
    finally:
        os.seteuid(0)
    states = states_of(folder, len(others), 65534)
    assert states == ["new"] * n_allowed + ["refused"], states
    for connection in others:
        connection.close()


def check_hung(folder):
    pid = json.loads(gemmctl(folder, "status", "--json").stdout)["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        hung = gemmctl(folder, "ready", "--alive")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert hung.returncode == 5, hung
    assert hung.stderr == f"gemmctl: {folder}/status did not answer within {ANSWER_MSEC} ms\n", hung


def check_ready_by_probe(folder):
    """Nothing has been served for longer than READY_AGE_MSEC, so each question is a launch; the third one fails."""
    answers = []
    for _ in range(4):
        answers.append(exposition.get(folder, "/readyz"))
        time.sleep(READY_AGE_MSEC * 1.1 / 1000)
    assert [status for status, _, _ in answers] == [200, 200, 503, 200], answers
    assert answers[2][1].startswith("not ready: host: "), answers[2]
    families = exposition.scrape(folder)
    assert exposition.value(families, "gemmd_launches") == 4
    assert exposition.value(families, "gemmd_launches_failed") == 1


def n_fds(folder):
    return json.loads(gemmctl(folder, "status", "--json").stdout)["fds"]["used"]


def is_hung_up(connection):
    try:
        return connection.recv(1000) == b""
    except ConnectionResetError:
        return True


def check_garbage(folder):
    for bytes_sent in (b"\0" * 5000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", os.urandom(3000) + b"\r\n\r\n",
                       b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n",
                       b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
                       b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
                       b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffff\r\n"):
        with raw(folder) as connection:
            try:
                connection.sendall(bytes_sent)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            except (BrokenPipeError, ConnectionResetError):
                pass
    assert exposition.get(folder, "/healthz")[0] == 200


def drip(connection, ret_seconds):
    begin = time.monotonic()
    try:
        while time.monotonic() < begin + LIFE_SECONDS + 10:
            connection.sendall(b"x")
            time.sleep(0.5)
    except (BrokenPipeError, ConnectionResetError):
        pass
    ret_seconds.append(time.monotonic() - begin)


def check_holders(folder):
    """A user's connections that say nothing, and one that says a little for ever, end; so do those over the limit."""
    before, begin = n_fds(folder), time.monotonic()
    dripping, dripped = raw(folder), []
    dripping.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
    dripper = threading.Thread(target=drip, args=(dripping, dripped))
    dripper.start()
    silent = [raw(folder) for _ in range(USER_MAX - 1)]
    over = raw(folder)
    assert is_hung_up(over), "a user had more than its share of connections"
    assert gemmctl(folder, "status").returncode == 0, "the control socket is held up"
    for connection in silent:
        assert is_hung_up(connection)
    silent_seconds = time.monotonic() - begin
    assert IDLE_SECONDS - 1 < silent_seconds < IDLE_SECONDS + 5, silent_seconds
    assert exposition.get(folder, "/healthz")[0] == 200
    dripper.join()
    assert LIFE_SECONDS - 1 < dripped[0] < LIFE_SECONDS + 5, dripped
    assert n_fds(folder) <= before + 1
    for connection in (*silent, dripping, over):
        connection.close()


def check_slow_reader(folder):
    """One who asks again and again and never reads costs a bounded amount, and nobody else notices."""
    with raw(folder) as connection:
        connection.setblocking(False)
        try:
            for _ in range(100000):
                connection.send(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        except BlockingIOError:
            pass
        for _ in range(20):
            assert exposition.get(folder, "/healthz")[0] == 200
    assert gemmctl(folder, "models").returncode == 0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    port = free_port()
    with running.daemon(config=f"status_port = {port}\n") as folder:
        check_documents(folder)
        check_modes(folder)
        check_loopback(port)
        check_garbage(folder)
        check_slow_reader(folder)
        check_holders(folder)
    for limit in ("user_sessions_max", "total_sessions_max"):
        with running.daemon(config=f"{limit} = {SESSIONS_MAX}\n") as folder:
            check_full(folder, limit)
    with running.daemon(config="ready_age_msec = 3600000\n") as folder:
        check_hung(folder)
        check_ready_by_age(folder)
    fault = {"GEMMD_FAULT": "error:3"}
    with running.daemon(config=f"ready_age_msec = {READY_AGE_MSEC}\n", environment=fault) as folder:
        check_ready_by_probe(folder)


if __name__ == "__main__":
    sys.exit(main())
