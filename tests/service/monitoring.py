#!/usr/bin/env python3
"""The dashboard and the alert rules name no metric, label or label value that a daemon under load does not have; their
expressions are PromQL and the rules do what their tests say, where promtool is installed. What the script textfile
writes has a label of its own and nothing of the process; without a daemon there is no file."""
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

import exposition
import running

FOLDER = running.REPOSITORY / "deploy" / "monitoring"
OF_PROMETHEUS = {"le", "instance", "job"}


def dashboard_expressions():
    """Its queries, with Grafana's variables replaced by what it puts there."""
    dashboard = json.loads((FOLDER / "gemmd.dashboard.json").read_text())
    titles = [panel["title"] for panel in dashboard["panels"]]
    assert len(set(titles)) == len(titles), titles
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids), ids
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    queries = [item["query"] for item in dashboard["templating"]["list"] if item["type"] == "query"]
    found += [re.fullmatch(r"label_values\((.*), \w+\)", query).group(1) for query in queries]
    return [re.sub(r"\$\w+", ".*", expr.replace("$__rate_interval", "5m")) for expr in found]


def rule_expressions():
    """The values of 'expr:', on one line or as a block; without a YAML reader, which Python does not bring."""
    lines, found = (FOLDER / "gemmd.rules.yml").read_text().splitlines(), []
    for i, line in enumerate(lines):
        match = re.match(r"( *)expr: (.*)", line)
        if match and match.group(2) == "|":
            block = []
            for following in lines[i + 1 :]:
                if not following.startswith(match.group(1) + "  "):
                    break
                block.append(following.strip())
            found.append(" ".join(block))
        elif match:
            found.append(match.group(2))
    assert len(found) > 8, found
    return found


def check_names(expr, samples):
    """Each metric is a sample of the daemon's, each label of a matcher is one of that metric's."""
    for name, matchers in re.findall(r"\b((?:gemmd|process)_\w+)(?:\{([^}]*)\})?", expr):
        assert name in samples, f"{name} of {expr!r} is no metric of gemmd"
        for label, operator, value in re.findall(r'(\w+)(=~|=|!=|!~)"([^"]*)"', matchers):
            if label in OF_PROMETHEUS:
                continue
            values = {labels.get(label) for labels in samples[name]}
            assert values != {None}, f"{name} has no label {label}: {expr!r}"
            if operator in ("=", "=~") and ".*" not in value:
                wanted = set(value.split("|"))
                assert wanted <= values, f"{name} has no {label} {wanted - values}: {expr!r}"


def check_groupings(expr, samples):
    """Labels that an expression groups by are labels of some metric in it."""
    names = re.findall(r"\b((?:gemmd|process)_\w+)", expr)
    known = {label for name in names for labels in samples[name] for label in labels} | OF_PROMETHEUS
    for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expr):
        labels = {label.strip() for label in group.split(",")}
        assert labels <= known, f"nothing has {labels - known}: {expr!r}"


def samples_of(folder):
    samples = {}
    for family in exposition.scrape(folder).values():
        for name, labels in family.samples:
            samples.setdefault(name, []).append(dict(labels))
    return samples


def write_textfile(folder, file):
    """The script's exit status."""
    command = [FOLDER / "textfile", folder / "status", file, "gemmd@0"]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode


def check_textfile(folder, file, samples):
    assert write_textfile(folder, file) == 0
    text = file.read_text()
    assert "process_" not in text
    names = re.findall(r"^(\w+)\{unit=\"gemmd@0\"[,}]", text, re.M)
    assert len(names) == len([line for line in text.splitlines() if line and line[0] != "#"]), text
    assert set(names) == {name for name in samples if not name.startswith("process_")}, set(samples) ^ set(names)


def check_with_promtool(expressions):
    if not shutil.which("promtool"):
        print("promtool is not installed: PromQL was not parsed, and the rules were not run")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        rules = [{"record": f"panel:{i}", "expr": expr} for i, expr in enumerate(expressions)]
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
        file.flush()
        subprocess.run(["promtool", "check", "rules", file.name], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["promtool", "check", "rules", FOLDER / "gemmd.rules.yml"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["promtool", "test", "rules", FOLDER / "gemmd.rules-test.yml"], check=True, stdout=subprocess.DEVNULL)


def main():
    expressions = dashboard_expressions()
    with tempfile.TemporaryDirectory() as name:
        file = pathlib.Path(name) / "gemmd.prom"
        with running.daemon() as folder:
            gemmctl = [running.BUILD / "client" / "tool" / "gemmctl", "--socket-dir", folder]
            subprocess.run(gemmctl + ["ready"], check=True, stdout=subprocess.DEVNULL)  # something has been served
            samples = samples_of(folder)
            if shutil.which("curl"):
                check_textfile(folder, file, samples)
        assert write_textfile(folder, file) == 1 and not any(file.parent.iterdir()), "figures of a daemon that is gone"
    for expr in expressions + rule_expressions():
        check_names(expr, samples)
        check_groupings(expr, samples)
    check_with_promtool(expressions)
    print(f"{len(expressions)} queries of the dashboard, {len(rule_expressions())} rules")


if __name__ == "__main__":
    main()
