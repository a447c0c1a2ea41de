"""A strict reader of OpenMetrics 1.0 and of the Prometheus text format 0.0.4, and a plain HTTP client for Unix sockets."""
import http.client
import math
import re
import socket

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
SUFFIXES = {
    "counter": ("_total",),
    "gauge": ("",),
    "info": ("_info",),
    "histogram": ("_bucket", "_count", "_sum"),
}
UNITS = ("seconds", "bytes")


class Connection(http.client.HTTPConnection):
    """HTTP over the status socket of a folder."""

    def __init__(self, folder, timeout=30):
        super().__init__("localhost", timeout=timeout)
        self.path = str(folder / "status")

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def get(folder, path, method="GET", headers=None):
    """Status, text and headers of one request on a connection of its own."""
    connection = Connection(folder)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def read_labels(text):
    """'{a="x",b="y"} ' at the start of text: the labels, and what follows."""
    labels, at = {}, 1
    while text[at] != "}":
        match = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="').match(text, at)
        assert match, f"no label at {text[at:]!r}"
        at, value = match.end(), []
        while text[at] != '"':
            assert text[at] != "\n", "a line feed in a label"
            if text[at] == "\\":
                value.append({"n": "\n", "\\": "\\", '"': '"'}[text[at + 1]])
                at += 2
            else:
                value.append(text[at])
                at += 1
        assert match.group(1) not in labels, f"label {match.group(1)} twice"
        labels[match.group(1)] = "".join(value)
        at += 1
        if text[at] == ",":
            at += 1
    return labels, text[at + 1 :]


def read_sample(line):
    name = NAME.match(line).group()
    rest = line[len(name) :]
    labels = {}
    if rest.startswith("{"):
        labels, rest = read_labels(rest)
    assert re.fullmatch(r" \S+", rest), f"no plain value in {line!r}"
    return name, labels, float(rest)


class Family:
    def __init__(self, kind):
        self.kind, self.help, self.samples = kind, None, {}


def read(text, is_openmetrics):
    """Family name to Family; AssertionError for what the format does not allow."""
    assert text.endswith("\n"), "the last line has no line feed"
    lines = text[:-1].split("\n")
    if is_openmetrics:
        assert lines.pop() == "# EOF", "the last line is not # EOF"
    families, name = {}, None
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if not is_openmetrics:
                name = re.sub(r"_total$", "", name) if kind == "counter" else name
                name, kind = (name[: -len("_info")], "info") if name.endswith("_info") else (name, kind)
            assert name not in families, f"family {name} twice"
            families[name] = Family(kind)
        elif line.startswith("# HELP "):
            families[name].help = line.split(" ", 3)[3]
        elif line.startswith("# UNIT "):
            _, _, unit_name, unit = line.split(" ")
            assert is_openmetrics and unit_name == name and name.endswith("_" + unit), line
        else:
            add_sample(families[name], name, line)
    for name, family in families.items():
        assert family.help, f"{name} has no help"
        if family.kind == "histogram":
            check_histogram(name, family)
    return families


def add_sample(family, name, line):
    sample, labels, value = read_sample(line)
    assert sample in [name + suffix for suffix in SUFFIXES[family.kind]], f"{sample} in family {name}"
    key = (sample, tuple(sorted(labels.items())))
    assert key not in family.samples, f"{line!r} is there twice"
    assert family.kind == "gauge" or value >= 0, line
    family.samples[key] = value


def check_histogram(name, family):
    """Buckets only rise, end at +Inf, and +Inf is the count."""
    groups = {}
    for (sample, labels), value in family.samples.items():
        plain = tuple(pair for pair in labels if pair[0] != "le")
        group = groups.setdefault(plain, {"buckets": []})
        if sample.endswith("_bucket"):
            group["buckets"].append((float(dict(labels)["le"]), value))
        else:
            group[sample[len(name) :]] = value
    for labels, group in groups.items():
        limits, counts = zip(*group["buckets"])
        assert list(limits) == sorted(set(limits)) and limits[-1] == math.inf, f"{name}{labels}: limits {limits}"
        assert list(counts) == sorted(counts), f"{name}{labels} falls: {counts}"
        assert counts[-1] == group["_count"] and "_sum" in group, f"{name}{labels}: {group}"


def scrape(folder, is_openmetrics=True):
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"} if is_openmetrics else {}
    status, text, sent = get(folder, "/metrics", headers=headers)
    assert status == 200, text
    wanted = "application/openmetrics-text; version=1.0.0" if is_openmetrics else "text/plain; version=0.0.4"
    assert sent["Content-Type"] == wanted + "; charset=utf-8", sent
    return read(text, is_openmetrics)


def value(families, name, **labels):
    """The sum over the samples that carry these labels; the family's counter, gauge or info."""
    family = families[name]
    sample = name + SUFFIXES[family.kind][0]
    return sum(
        amount for (found, pairs), amount in family.samples.items()
        if found == sample and labels.items() <= dict(pairs).items()
    )
