#!/usr/bin/env bash
# The units under a real systemd: process 1 of namespaces of its own, with nothing but gemmd's units and the journal.
#
#   tests/systemd/test-units.sh     with GEMMD_BUILD_DIR and GEMMD_SOURCE_DIR set, as ctest does
#
# Skipped (77) where that cannot be had: it takes root, systemd and namespaces.
set -euo pipefail

systemd=/lib/systemd/systemd
build=${GEMMD_BUILD_DIR:?} source=${GEMMD_SOURCE_DIR:?}
scratch=$(mktemp -d)
. "$source/tests/harness/shell.sh"

[ "$(id -u)" = 0 ] || skip "needs root"
[ -x $systemd ] || skip "no systemd here"

# ---- inside ---------------------------------------------------------------------------------------

# Folders of the machine are covered, never changed: the program and its model in /opt, users in a copy of /etc.
cover() {
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    mount -t tmpfs tmpfs /opt
    mount -t tmpfs tmpfs /var/lib
    mount -t tmpfs tmpfs /var/log
    mkdir /run/etc /run/etc/upper /run/etc/work
    mount -t overlay overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work /etc
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
}

prepare() {
    cover
    cmake --install "$build" --prefix /opt/gemmd >/dev/null
    cp -r "$source/tests/data/minilm-gptq-4bit" /opt/model
    printf 'devices = host\nmodels = mini=/opt/model\n' >/opt/gemmd/etc/gemmd/gemmd.conf
    chmod -R go+rX /opt
    systemd-sysusers /opt/gemmd/lib/sysusers.d/gemmd.conf
    systemd-tmpfiles --create /opt/gemmd/lib/tmpfiles.d/gemmd.conf
    units
}

# Only these exist: no unit of the machine can start.
units() {
    mkdir /run/units
    for unit in gemmd.service gemmd@.service gemmd.socket; do
        sed 's,=/usr/local/,=/opt/gemmd/,; s, /usr/local/, /opt/gemmd/,g; s,WatchdogSec=.*,WatchdogSec=3,' \
            "/opt/gemmd/lib/systemd/system/$unit" >"/run/units/$unit"
    done
    for target in sysinit basic sockets shutdown multi-user; do
        printf '[Unit]\nDescription=%s\n' "$target" >"/run/units/$target.target"
    done
    printf 'Wants=systemd-journald.socket systemd-journald.service\n' >>/run/units/multi-user.target
    cp /lib/systemd/system/systemd-journald{.service,.socket,-dev-log.socket} /run/units/
}

if [ "${1:-}" = probe ]; then
    cover
    exit
fi
if [ "${1:-}" = inside ]; then
    prepare
    export SYSTEMD_UNIT_PATH=/run/units container=gemmd-test
    exec $systemd --system --unit=multi-user.target
fi

# ---- outside --------------------------------------------------------------------------------------

unshare --pid --mount --cgroup --ipc --fork --mount-proc "$0" probe 2>/dev/null || skip "no namespaces and mounts here"
unshare --pid --mount --cgroup --ipc --fork --kill-child --mount-proc "$0" inside >"$scratch/log" 2>&1 </dev/null &
outer=$!

end() {
    kill -9 "$outer" 2>/dev/null || true
    wait "$outer" 2>/dev/null || true
    rm -rf "$scratch"
}
trap end EXIT

fail() {
    echo "FAILED: $1"
    cat "$scratch/log"
    inside journalctl --no-pager -b -n 40 || true
    exit 1
}

first_process() {
    manager=$(pgrep -P "$outer" -x systemd)
}

inside() {
    nsenter -t "$manager" -p -m -C "$@"
}

# As somebody who is only a member of the group.
gemmctl() {
    inside setpriv --reuid=nobody --regid="$group" --clear-groups /opt/gemmd/bin/gemmctl --socket-dir /run/gemmd "$@"
}

status() {
    gemmctl --json status
}

property() {
    inside systemctl show -P "$1" gemmd.service
}

serves() {
    local document
    document=$(status) && [[ $document == *"\"origin\": \"$1\""* ]]
}

# logged ID TEXT: is that in the journal, under that id?
logged() {
    [[ $(inside journalctl -q -b "MESSAGE_ID=$1") == *"$2"* ]]
}

# await_successor PID: another process serves, with the weights of that one.
await_successor() {
    until_true 20 eval "[ \"\$(property MainPID)\" != $1 ] && [ \"\$(property MainPID)\" != 0 ] && serves adopted" ||
        fail "no successor of $1 has adopted the weights"
}

until_true 20 first_process || fail "systemd did not start"
until_true 20 inside systemctl is-active multi-user.target || fail "systemd does not answer"
group=$(inside getent group gemmd | cut -d: -f3)

inside systemctl start gemmd.socket || fail "gemmd.socket"
[ "$(inside stat -c %U:%G:%a /run/gemmd/session)" = gemmd:gemmd:660 ] || fail "the sockets are not the group's"
inside systemctl start gemmd.service || fail "gemmd.service"
serves loaded || fail "the model is not served"
n_kept=$(property NFileDescriptorStore)
[ "$n_kept" -gt 30 ] || fail "systemd keeps $n_kept descriptors"
echo "ready; systemd keeps $n_kept descriptors"

refused=$(inside setpriv --reuid=nobody --regid=nogroup --clear-groups /opt/gemmd/bin/gemmctl --socket-dir /run/gemmd status 2>&1) &&
    fail "somebody who is not in the group was let in"
[[ $refused == *"this user may not connect to /run/gemmd/session"* ]] || fail "'$refused' does not say who may"

pid=$(property MainPID)
inside kill -9 "$pid"
await_successor "$pid"
[ "$(property NFileDescriptorStore)" = "$n_kept" ] || fail "the store has changed"
echo "SIGKILL: adopted"

pid=$(property MainPID)
inside systemctl restart gemmd.service || fail "restart"
await_successor "$pid"
echo "restart: adopted"

pid=$(property MainPID)
inside kill -STOP "$pid"
await_successor "$pid"
[ "$(property NRestarts)" = 1 ] || fail "not started anew by the watchdog"
echo "watchdog: adopted"

inside systemctl reload gemmd.service || fail "reload"
inside sh -c 'echo "threads = many" >>/opt/gemmd/etc/gemmd/gemmd.conf'
! inside systemctl reload gemmd.service 2>/dev/null || fail "a reload of a file with a fault says it worked"
[ "$(inside systemctl is-active gemmd.service)" = active ] || fail "a fault in the file has ended it"
until_true 10 logged 52ac86bd278740c7b8c0b08c68339f03 'stays as it was' ||
    fail "the fault is not in the journal under its id"
inside sed -i '/many/d' /opt/gemmd/etc/gemmd/gemmd.conf
echo "reload: a fault is in the journal under its id"

# refuses_to_start TEXT: a restart fails for that, again and again, and the weights stay.
refuses_to_start() {
    ! inside systemctl restart gemmd.service 2>/dev/null || fail "a restart that cannot work says it did"
    until_true 10 logged 8dc60d3137dc448e967dfe28cb2a08ec "$1" || fail "'$1' is not in the journal under its id"
    local n_before
    n_before=$(property NRestarts)
    sleep 5
    [ "$(property NRestarts)" -gt "$n_before" ] || fail "it is not tried again"
    [ "$(property NRestarts)" -le $((n_before + 3)) ] || fail "it is tried so often that systemd will give it up"
    [ "$(property NFileDescriptorStore)" = "$n_kept" ] || fail "systemd keeps $(property NFileDescriptorStore) descriptors"
}

pid=$(property MainPID)
for fault in "threads = many" "models = missing=/nowhere"; do
    inside sh -c "echo '$fault' >>/opt/gemmd/etc/gemmd/gemmd.conf"
    refuses_to_start "${fault##*[= ]}"
    inside sed -i '/many\|missing/d' /opt/gemmd/etc/gemmd/gemmd.conf
    await_successor "$pid"
    pid=$(property MainPID)
    echo "a start that cannot work ($fault): waited until it was mended, and adopted"
done

# What an operator has drained stays so over a death, and not over a restart.
inside /opt/gemmd/bin/gemmctl --socket-dir /run/gemmd drain >/dev/null || fail "drain"
inside kill -9 "$pid"
await_successor "$pid"
[[ $(status) == *'"state": "draining"'* ]] || fail "a death has undone the draining"
pid=$(property MainPID)
inside systemctl restart gemmd.service || fail "restart"
await_successor "$pid"
[[ $(status) == *'"state": "serving"'* ]] || fail "a restart has not ended the draining"
[ "$(property NFileDescriptorStore)" = "$n_kept" ] || fail "the mark is still in the store"
echo "drained: over a death, until a restart"

inside systemctl stop gemmd.service 2>/dev/null || fail "stop"
[ "$(property Result)" = success ] || fail "it did not end well: $(property Result)"
inside test -S /run/gemmd/session || fail "the socket went with the daemon"
until_true 20 serves loaded || fail "a connection does not start it"
[ "$(inside systemctl is-active gemmd.service)" = active ] || fail "not active"
echo "stop, and started by a connection: loaded anew"

# The unit for one device: its own folder, which is its own user's.
inside systemctl start gemmd@host.service || fail "gemmd@host.service"
inside setpriv --reuid=gemmd --regid=gemmd --clear-groups /opt/gemmd/bin/gemmctl --socket-dir /run/gemmd-host status >/dev/null ||
    fail "gemmd@host.service does not answer"
inside systemctl stop gemmd@host.service || fail "stop of gemmd@host.service"
echo "one process for one device, beside the other"
