#!/usr/bin/env python3
"""deploy/container: the packages that the image installs are those that CPack makes, the commands that it and the
DaemonSet run are ones that the programs know, and the configuration in it has no fault. No container is built; container.sh
starts what would be in it."""
import re
import subprocess
import tempfile

import running

FOLDER = running.REPOSITORY / "deploy" / "container"
GEMMD = running.BUILD / "daemon" / "gemmd"
GEMMCTL = running.BUILD / "client" / "tool" / "gemmctl"


def check_packages():
    text = (FOLDER / "Containerfile").read_text()
    copied = re.findall(r"build/package/([^*\s]*)\*", text)
    cpack = (running.BUILD / "CPackConfig.cmake").read_text()
    made = re.findall(r'CPACK_DEBIAN_(?:DAEMON|LIB|CTL)_PACKAGE_NAME "(.*)"', cpack)
    assert len(copied) == len(made) == 3, (copied, made)
    for name in made:
        assert any(re.match(pattern.replace("[0-9]", r"\d"), name + "_") for pattern in copied), (name, copied)


def check_commands():
    text = (FOLDER / "Containerfile").read_text() + (FOLDER / "daemonset.yaml").read_text()
    known = subprocess.run([GEMMCTL, "--help"], check=True, capture_output=True, text=True).stdout
    commands = set(re.findall(r'"?gemmctl"?, "?(\w+)', text))
    assert commands == {"ready"}, commands
    for command in commands:
        assert re.search(rf"^  {command} ", known, re.M), f"gemmctl has no command {command}"
    options = set(re.findall(r"gemmctl, ready, (--[\w-]+)", text))
    usage = subprocess.run([GEMMCTL, "ready", "--help"], check=True, capture_output=True, text=True).stdout
    assert options == {"--alive"} and "[--alive]" in usage, (options, usage)
    help_text = subprocess.run([GEMMD, "--help"], check=True, capture_output=True, text=True).stdout
    for option in re.findall(r'"(--[\w-]+)"', re.search(r"ENTRYPOINT (.*)", text).group(1)):
        assert option in help_text, f"gemmd has no option {option}"


def check_configuration():
    text = (FOLDER / "daemonset.yaml").read_text()
    block = re.search(r"gemmd\.conf: \|\n((?:    .*\n)+)", text).group(1)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write(block.replace("\n    ", "\n").lstrip())
        file.flush()
        result = subprocess.run([GEMMD, "--check-config", "--config", file.name], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert re.search(r"warning: \S+:\d+: models: 'example=/models/example': cannot open .*: No such file", result.stderr), "its model is not here"


def main():
    check_commands()
    check_configuration()
    check_packages()


if __name__ == "__main__":
    main()
