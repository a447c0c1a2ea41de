#!/usr/bin/env python3
"""/metrics of a running daemon: both formats are well-formed, names come back as they are, nothing falls while models
come and go under load, what was served adds up, and strangers' requests make no series. promtool judges it too, where
it is installed."""
import ctypes
import itertools
import os
import re
import shutil
import subprocess
import threading

import exposition
import running

# T50: names that need escaping, and a long one: with its modules' a name has 255 bytes at most.
NAMES = ['a"b', "a\\b", "a\\", "C:\\new", "{x}", "λέξη", "n" * 200]
REFUSED = ["a\nb", "n" * 300]

WEIGHT_BYTES = 384  # sizeof(gemmd_weight_t), gemmd.h


def gemmctl(folder, *arguments):
    command = [running.BUILD / "client" / "tool" / "gemmctl", "--socket-dir", folder, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def demo(folder, model, seconds):
    command = [running.BUILD / "deploy" / "demo" / "gemmd-demo", "--socket-dir", folder, "--seconds", str(seconds)]
    return subprocess.Popen([*command, model, running.CHECKPOINT], stdout=subprocess.PIPE, text=True)


def check_names(folder):
    for name in NAMES:
        result = gemmctl(folder, "load", name, running.CHECKPOINT)
        assert result.returncode == 0, result.stderr
    for name in REFUSED:
        assert gemmctl(folder, "load", name, running.CHECKPOINT).returncode in (2, 4), f"{name!r} was loaded"
    families = exposition.scrape(folder)
    found = {dict(labels)["model"] for _, labels in families["gemmd_model_weights"].samples}
    assert found == {"minilm", *NAMES}, found
    for name in NAMES:
        assert gemmctl(folder, "unload", name).returncode == 0


def n_series(families):
    return sum(len(family.samples) for family in families.values())


def ask_in_this_process(folder, names):
    """Look weights up that there are none of, through the library: thousands a second. A library under a sanitizer cannot
    be loaded into Python."""
    library = ctypes.CDLL(running.BUILD / "client" / "libgemmd.so")
    os.environ["GEMMD_SOCKET_DIR"] = str(folder)
    client = ctypes.c_void_p()
    assert library.gemmd_open(None, ctypes.byref(client)) == 0
    weight = (ctypes.c_uint64 * 64)()
    weight[0] = WEIGHT_BYTES
    for name in names:
        assert library.gemmd_find_weight(client, name.encode(), ctypes.byref(weight)) != 0, f"{name} was found"
    library.gemmd_close(client)


def check_strangers(folder):
    """T50: requests for what does not exist make no series."""
    before = n_series(exposition.scrape(folder))
    for i in range(100):
        assert gemmctl(folder, "explain", f"stranger{i}/layer").returncode == 4
    if not os.environ.get("GEMMD_SANITIZE"):
        ask_in_this_process(folder, (f"stranger{i}/layer" for i in range(10000)))
    after = n_series(exposition.scrape(folder))
    assert before == after, f"{after - before} series were made by requests for models that do not exist"


def counters(families):
    """Every sample that may only rise."""
    return {
        key: amount
        for family in families.values() if family.kind in ("counter", "histogram")
        for key, amount in family.samples.items()
    }


def check_no_fall(folder, stop):
    last, started = {}, None
    for i in itertools.count():
        families = exposition.scrape(folder, is_openmetrics=i % 2 == 0)
        now = counters(families)
        # A histogram's sum is read a little after its count, and both while they are counted.
        fallen = [key for key, amount in last.items() if now.get(key, -1) < amount]
        assert not fallen, f"fell: {[(key, last[key], now.get(key)) for key in fallen]}"
        start = exposition.value(families, "process_start_time_seconds")
        assert started in (None, start), "the start moved"
        last, started = now, start
        if stop.wait(0.02):
            return i + 1


def check_under_load(folder):
    """T51."""
    stop, results = threading.Event(), []

    def watch():
        try:
            results.append(check_no_fall(folder, stop))
        except BaseException as error:
            results.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    clients = demo(folder, "minilm", 2)
    for _ in range(5):
        assert gemmctl(folder, "load", "other", running.CHECKPOINT).returncode == 0
        assert gemmctl(folder, "reload", "minilm").returncode == 0
        assert gemmctl(folder, "unload", "other").returncode == 0
    output, _ = clients.communicate(timeout=120)
    stop.set()
    watcher.join()
    assert clients.returncode == 0, output
    assert isinstance(results[0], int), results[0]
    print(f"{results[0]} scrapes under load")


def check_sums(folder):
    families = exposition.scrape(folder)
    value = lambda name, **labels: exposition.value(families, name, **labels)
    served = value("gemmd_requests", result="ok")
    assert served > 100
    assert served == value("gemmd_model_requests"), "what models served is not what was served"
    assert value("gemmd_rows") == value("gemmd_model_rows")
    assert value("gemmd_requests_accepted") == value("gemmd_requests")
    count = lambda name: sum(
        amount for (sample, _), amount in families[name].samples.items() if sample == name + "_count"
    )
    launches = value("gemmd_launches")
    assert count("gemmd_launch_rows") == count("gemmd_kernel_seconds") == count("gemmd_stall_seconds") == launches
    assert count("gemmd_queue_seconds") == count("gemmd_request_seconds") == served
    assert value("gemmd_state", state="serving") == 1 and value("gemmd_state") == 1
    assert value("gemmd_models") == 1 and value("gemmd_weights") == 37
    old = exposition.scrape(folder, is_openmetrics=False)
    assert {name for name in old} == {name for name in families}, "the formats have different families"


def check_limits(folder):
    """Every figure that gemmd.conf says a limit is counted in is there, with the labels it says."""
    text = (running.REPOSITORY / "deploy" / "gemmd.conf").read_text()
    figures = set(re.findall(r'(gemmd_\w+)(?:\{(\w+)="(\w+)"\})?', text.replace("\n# ", " ")))
    assert len(figures) > 8, figures
    families = exposition.scrape(folder)
    samples = {(name, pair) for family in families.values() for name, pairs in family.samples for pair in pairs or [()]}
    for name, key, label in figures:
        wanted = (name, (key, label)) if key else (name, ())
        assert wanted in samples, f"gemmd.conf names {wanted}, which /metrics does not have"


def check_with_promtool(folder):
    if not shutil.which("promtool"):
        print("promtool is not installed: the format was judged by tests/service/exposition.py only")
        return
    _, text, _ = exposition.get(folder, "/metrics")
    result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def main():
    with running.daemon() as folder:
        check_names(folder)
        check_strangers(folder)
        check_under_load(folder)
        check_sums(folder)
        check_limits(folder)
        check_with_promtool(folder)


if __name__ == "__main__":
    main()
