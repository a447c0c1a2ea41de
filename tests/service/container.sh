#!/usr/bin/env bash
# What deploy/container starts, as a container runtime would start it, without one: the installed programs over a root that
# is read-only, process 1 of namespaces of its own, the user 999 without capabilities, the entry point of the Containerfile,
# the configuration and the probes of the DaemonSet, and only /run/gemmd to write to.
#
#   tests/service/container.sh [ROOT]    with GEMMD_BUILD_DIR and GEMMD_SOURCE_DIR set, as ctest does; ROOT: in which the
#                                        packages are installed, instead of this machine's with the programs of this build
#
# Skipped (77) where that cannot be had: it takes root and namespaces.
set -euo pipefail

build=${GEMMD_BUILD_DIR:?} source=${GEMMD_SOURCE_DIR:?} base=${1:-/}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/${BASH_SOURCE[0]##*/}
. "$source/tests/harness/shell.sh"

# entry_point: its words, one a line.
entry_point() {
    sed -n 's/^ENTRYPOINT \[\(.*\)\]$/\1/p' "$source/deploy/container/Containerfile" | tr -d '" ' | tr , '\n'
}

# configuration: gemmd.conf of the DaemonSet, with the model that is here. Without GPUs, auto is the host.
configuration() {
    sed -n '/gemmd\.conf: |/,/^---/s/^    //p' "$source/deploy/container/daemonset.yaml" | sed 's,^models = .*,models = example=/models/example,'
}

# ---- inside ---------------------------------------------------------------------------------------

# make_root DIR: the root is DIR/root, in this mount namespace alone.
make_root() {
    local image=$1/image root=$1/root
    mount --make-rprivate /
    mount -t tmpfs tmpfs "$1"
    mkdir "$image" "$root"
    mkdir -p "$image"/{models/example,run/gemmd,proc,tmp,etc/gemmd}
    if [ "$base" = / ]; then
        DESTDIR=$image cmake --install "$build" --prefix /usr >/dev/null
    fi
    cp "$source"/tests/data/minilm-gptq-4bit/* "$image/models/example/"
    configuration >"$image"/etc/gemmd/gemmd.conf
    chmod -R go+rX "$image"
    mount -t overlay overlay -o "ro,lowerdir=$image:$base" "$root"
    mount -t proc proc "$root"/proc
    mount --rbind /dev "$root"/dev
    mount -t tmpfs -o size=64m,mode=0755,uid=999,gid=999 tmpfs "$root"/run/gemmd
}

if [ "${2:-}" = inside ]; then
    make_root "$3"
    mapfile -t words < <(entry_point)
    exec chroot "$3/root" setpriv --reuid=999 --regid=999 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
        env -i PATH=/usr/bin:/bin GEMMD_SOCKET_DIR=/run/gemmd "${words[@]}"
fi

# ---- outside --------------------------------------------------------------------------------------

[ "$(id -u)" = 0 ] || skip "needs root"
unshare --pid --mount --fork --mount-proc true 2>/dev/null || skip "no namespaces here"

scratch=$(mktemp -d)
mkdir "$scratch/mounts"
unshare --pid --mount --fork --kill-child --mount-proc "$here" "$base" inside "$scratch/mounts" >"$scratch/log" 2>&1 </dev/null &
outer=$!
trap 'kill -9 $outer 2>/dev/null || true; wait $outer 2>/dev/null || true; rm -rf "$scratch"' EXIT

fail() {
    echo "FAILED: $1"
    cat "$scratch/log"
    exit 1
}

# A probe of the kubelet: a command of the container's, as its user.
probe() {
    nsenter -t "$(pgrep -P "$outer")" -p -m -r -w setpriv --reuid=999 --regid=999 --clear-groups \
        env -i PATH=/usr/bin:/bin GEMMD_SOCKET_DIR=/run/gemmd "$@"
}

# By the status of the daemon, so in the numbers of the container.
daemon_pid() {
    probe gemmctl --json status | sed -n 's/^  "pid": \([0-9]*\),.*/\1/p'
}

is_another() {
    local pid
    pid=$(daemon_pid) && [ -n "$pid" ] && [ "$pid" != "$1" ]
}

until_true 30 probe gemmctl ready || fail "it is not ready"
pid=$(daemon_pid)
[ "$pid" -gt 1 ] || fail "the keeper is not process 1: the daemon is $pid"
! probe touch /etc/gemmd/x 2>/dev/null || fail "the root can be written to"
echo "ready, by the probe's command: process $pid under process 1"

probe sh -c "kill -9 $pid" # a small image has no /bin/kill
until_true 20 is_another "$pid" || fail "the daemon was not started again"
until_true 20 probe gemmctl ready || fail "the next daemon is not ready"
[[ $(probe gemmctl --json status) == *'"origin": "adopted"'* ]] || fail "the next daemon has not taken over the weights"
probe gemmctl verify example >/dev/null || fail "what was taken over is not what the checkpoint says"
echo "SIGKILL: the next daemon has the weights"

# shellcheck disable=SC2016 # a shell of the container's expands it
probe sh -c '(sleep 0.2 & exec true)'
sleep 0.5
! probe sh -c 'grep -l "^State:.*Z" /proc/[0-9]*/status' >/dev/null 2>&1 || fail "process 1 leaves zombies"
echo "orphans are reaped"

kill -TERM "$(pgrep -P "$outer")"
code=0
wait "$outer" || code=$?
[ "$code" = 0 ] || fail "it ended with $code on SIGTERM"
echo "SIGTERM: ended with 0"
