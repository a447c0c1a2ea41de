#!/usr/bin/env python3
"""A real Prometheus scrapes a daemon under load: it accepts every sample, the dashboard's queries and the rules run on
what it stored, and counters rise. Skipped where no prometheus is installed."""
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import monitoring
import running

SKIPPED = 77
DEADLINE_SECONDS = 60


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def write_config(folder, target_port):
    """Ten scrapes a second, so that rates exist within one."""
    path = f"{folder}/prometheus.yml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(
            "global: {scrape_interval: 100ms, evaluation_interval: 100ms}\n"
            f"rule_files: [{json.dumps(str(monitoring.FOLDER / 'gemmd.rules.yml'))}]\n"
            "scrape_configs:\n"
            "- job_name: gemmd\n"
            f"  static_configs: [{{targets: ['127.0.0.1:{target_port}']}}]\n"
        )
    return path


def ask(port, path, **parameters):
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        document = json.load(answer)
    assert document["status"] == "success", document
    return document["data"]


def value(port, query):
    """Of a query that gives one sample; None while it gives none, or nobody answers yet."""
    try:
        found = ask(port, "query", query=query)["result"]
    except OSError:
        return None
    return float(found[0]["value"][1]) if found else None


def wait_until(what, is_true):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, f"{what} did not come true in {DEADLINE_SECONDS} s"
        time.sleep(0.1)


def check(port):
    wait_until("a scrape", lambda: value(port, 'up{job="gemmd"}') == 1)
    wait_until("the evaluation of all rules", lambda: all(rule["health"] == "ok" for rule in rules(port)))
    targets = ask(port, "targets")["activeTargets"]
    assert [target["lastError"] for target in targets] == [""], targets
    assert value(port, "scrape_samples_scraped") > 100
    wait_until("a rate of requests", lambda: (value(port, "sum(rate(gemmd_requests_total[2s]))") or 0) > 0)
    for query in monitoring.dashboard_expressions():
        ask(port, "query", query=query)


def rules(port):
    return [rule for group in ask(port, "rules")["groups"] for rule in group["rules"]]


def main():
    if not shutil.which("prometheus"):
        print("prometheus is not installed")
        sys.exit(SKIPPED)
    status_port, own_port = free_port(), free_port()
    demo = [running.BUILD / "deploy" / "demo" / "gemmd-demo", "--seconds", "5", "minilm", running.CHECKPOINT]
    with running.daemon(f"status_port = {status_port}\n") as folder, tempfile.TemporaryDirectory() as store:
        command = ["prometheus", f"--config.file={write_config(store, status_port)}", f"--storage.tsdb.path={store}/data"]
        command += [f"--web.listen-address=127.0.0.1:{own_port}", "--log.level=error"]
        scraper = subprocess.Popen(command)
        clients = subprocess.Popen([demo[0], "--socket-dir", folder, *demo[1:]], stdout=subprocess.DEVNULL)
        try:
            check(own_port)
        finally:
            scraper.terminate()
            scraper.wait(timeout=30)
            status = clients.wait(timeout=60)
        assert status == 0, f"the clients ended with status {status}"


if __name__ == "__main__":
    main()
