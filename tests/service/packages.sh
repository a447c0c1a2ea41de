#!/usr/bin/env bash
# The Debian packages of this build, put into an empty root by dpkg: what they hold and need, that the programs of that
# root work together, that a program builds against the development files there, that a changed configuration survives,
# and that purging them leaves nothing.
set -euo pipefail
if [ -n "${GEMMD_SANITIZE:-}" ]; then
    echo "packages are made of plain builds: skipped"
    exit 77
fi
if ! command -v dpkg-shlibdeps >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "dpkg-dev is not installed, or this is not root: packages were not made"
    exit 77
fi

scratch=$(mktemp -d)
daemon=
finish() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    rm -rf "$scratch"
}
trap finish EXIT
root=$scratch/root packages=$scratch/packages

fail() {
    echo "packages: $*" >&2
    exit 1
}

field() { dpkg-deb -f "$packages/$1"_*.deb "$2"; }

has_file() { [ -e "$root/$1" ] || fail "no $1 in the root"; }

into_root() { dpkg --root="$root" --force-depends --force-script-chrootless --force-confold "$@" >>"$scratch/dpkg.log" 2>&1; }

cpack --config "$GEMMD_BUILD_DIR/CPackConfig.cmake" -B "$packages" >"$scratch/cpack.log" || fail "$(tail -n 20 "$scratch/cpack.log")"
version=$(field gemmd Version)
library=libgemmd${version%.*}

[[ $(field gemmd Depends) == procps*libmicrohttpd12*libzmq5* ]] || fail "gemmd depends on $(field gemmd Depends)"
[[ $(field gemmctl Depends) == *libncursesw6* ]] || fail "gemmctl depends on $(field gemmctl Depends)"
[ "$(field libgemmd-dev Depends)" = "$library (= $version)" ] || fail "libgemmd-dev depends on $(field libgemmd-dev Depends)"
dpkg-deb --ctrl-tarfile "$packages/$library"_*.deb | tar -xO ./shlibs | grep -qx "libgemmd ${version%.*} $library.*" ||
    fail "$library says nothing of the library that it has"
dpkg-deb --ctrl-tarfile "$packages/$library"_*.deb | tar -xO ./postinst | grep -q ldconfig || fail "$library runs no ldconfig"
for package in "$packages"/*.deb; do
    ! dpkg-deb -f "$package" Description | grep '^  ' || fail "lines of the description of ${package##*/} would be shown as they are"
    if dpkg-deb -c "$package" | grep -v '^[-dl]\S* root/root ' || dpkg-deb -c "$package" | grep -E '\./usr/(etc|local)'; then
        fail "${package##*/} has a file of somebody's, or in a place that is no package's"
    fi
done

same=$(for package in "$packages"/*.deb; do dpkg-deb -f "$package" Description | head -n 1; done | sort | uniq -d)
[ -z "$same" ] || fail "more than one package is described as '$same'"

mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/usr/bin"
touch "$root/var/lib/dpkg/status"
into_root -i "$packages"/*.deb || fail "$(tail -n 20 "$scratch/dpkg.log")"
for file in etc/gemmd/gemmd.conf usr/share/man/man8/gemmd.8.gz usr/share/man/man5/gemmd.conf.5.gz usr/share/man/man1/gemmctl.1.gz \
    usr/share/man/man3/libgemmd.3.gz usr/share/doc/gemmd/copyright "usr/share/doc/$library/copyright" \
    usr/share/doc/gemmd/CHANGELOG.md usr/share/doc/gemmd/PROTOCOL.md \
    usr/share/gemmd/monitoring/gemmd.rules.yml usr/share/gemmd/monitoring/textfile usr/share/doc/gemmd/systemd/README.md; do
    has_file "$file"
done
grep -q common-licenses/Apache-2.0 "$root/usr/share/doc/gemmctl/copyright" || fail "the licence is a copy"
grep -q '^ExecStart=/usr/bin/gemmd --config /etc/gemmd/gemmd.conf' "$root/usr/lib/systemd/system/gemmd.service" ||
    fail "the unit starts $(grep '^ExecStart=' "$root/usr/lib/systemd/system/gemmd.service")"
! readelf -S "$root/usr/bin/gemmd" | grep -q debug_info || fail "gemmd was not stripped"
"$root/usr/bin/gemmd" --config "$root/etc/gemmd/gemmd.conf" --check-config

"$root/usr/bin/gemmd" --config "$root/etc/gemmd/gemmd.conf" --socket-dir "$scratch/s" --device host \
    --model "minilm=$GEMMD_SOURCE_DIR/tests/data/minilm-gptq-4bit" 2>"$scratch/gemmd.log" &
daemon=$!
for _ in $(seq 200); do
    "$root/usr/bin/gemmctl" --socket-dir "$scratch/s" ready >/dev/null 2>&1 && break
    kill -0 "$daemon" 2>/dev/null || fail "$(tail -n 5 "$scratch/gemmd.log")"
    sleep 0.1
done
"$root/usr/bin/gemmctl" --socket-dir "$scratch/s" verify minilm >/dev/null || fail "the installed programs do not work together"

cat >"$scratch/first.c" <<'C'
#include <gemmd.h>

int main(void)
{
    gemmd_client_t *client = NULL;
    gemmd_weight_t weight = GEMMD_WEIGHT_INIT;
    int r = gemmd_open(NULL, &client);
    r = r != GEMMD_OK ? r : gemmd_find_weight(client, "minilm/pooler.dense", &weight);
    gemmd_close(client);
    return r == GEMMD_OK && weight.n == 384 ? 0 : 1;
}
C
PKG_CONFIG_PATH=$(dirname "$(find "$root/usr" -name gemmd.pc)")
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # flags are words
cc -Wall -Werror -o "$scratch/first" "$scratch/first.c" $(pkg-config --cflags --libs gemmd)
LD_LIBRARY_PATH=$(pkg-config --variable=libdir gemmd) GEMMD_SOCKET_DIR=$scratch/s "$scratch/first" || fail "a program of the package's library"
kill -TERM "$daemon"
wait "$daemon" || fail "the installed daemon ended with $?"
daemon=

echo '# mine' >>"$root/etc/gemmd/gemmd.conf"
into_root -i "$packages"/gemmd_*.deb || fail "$(tail -n 20 "$scratch/dpkg.log")"
grep -qx '# mine' "$root/etc/gemmd/gemmd.conf" || fail "an upgrade lost a changed gemmd.conf"
into_root -P gemmd gemmctl libgemmd-dev "$library" || fail "$(tail -n 20 "$scratch/dpkg.log")"
left=$(find "$root" -path "$root/var/lib/dpkg" -prune -o -not -type d -print)
[ -z "$left" ] || fail "purging left $left"
