#!/usr/bin/env python3
"""deploy/container: the image has the packages of every library that the programs are linked with, the commands that it
and the DaemonSet run are ones that the programs know, and the configuration in it has no fault. No container is built."""
import re
import shutil
import subprocess
import sys
import tempfile

import running

FOLDER = running.REPOSITORY / "deploy" / "container"
GEMMD = running.BUILD / "daemon" / "gemmd"
GEMMCTL = running.BUILD / "client" / "tool" / "gemmctl"
OF_THE_BASE = {"libc6", "libgcc-s1", "libstdc++6"}
OF_SANITIZERS = ("libasan", "libubsan", "libtsan")


def needed_libraries(program):
    output = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", output))


def package_of(library):
    """Of Debian, by the file that the dynamic linker finds."""
    cache = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    path = re.search(rf"^\s*{re.escape(library)} .*x86-64.*=> (\S+)", cache, re.M)
    assert path, f"{library} is not in the linker's cache"
    for name in (path.group(1), "/usr" + path.group(1), path.group(1).removeprefix("/usr")):
        result = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True)
        if result.returncode == 0:
            return result.stdout.split(":")[0]
    sys.exit(f"no package has {path.group(1)}")


def check_packages():
    text = (FOLDER / "Containerfile").read_text()
    listed = set(re.search(r"--no-install-recommends \\\n(.*?)&&", text, re.S).group(1).replace("\\", " ").split())
    libraries = needed_libraries(GEMMD) | needed_libraries(GEMMCTL)
    wanted = {package_of(name) for name in libraries if not name.startswith(OF_SANITIZERS)} - OF_THE_BASE
    assert wanted == listed, f"missing in the image: {wanted - listed}; not needed in it: {listed - wanted}"


def check_commands():
    text = (FOLDER / "Containerfile").read_text() + (FOLDER / "daemonset.yaml").read_text()
    known = subprocess.run([GEMMCTL, "--help"], check=True, capture_output=True, text=True).stdout
    commands = set(re.findall(r'"?gemmctl"?, "?(\w+)', text))
    assert commands == {"ready", "status"}, commands
    for command in commands:
        assert re.search(rf"^  {command} ", known, re.M), f"gemmctl has no command {command}"
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


def main():
    check_commands()
    check_configuration()
    if not shutil.which("dpkg-query"):
        print("this is no Debian: packages were not looked at")
        return
    check_packages()


if __name__ == "__main__":
    main()
