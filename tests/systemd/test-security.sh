#!/usr/bin/env bash
# The units by systemd-analyze: the exposure of gemmd.service is 1.0 at most, and systemd knows every line of all of them.
set -euo pipefail

units=${GEMMD_BUILD_DIR:?}/deploy/systemd source=${GEMMD_SOURCE_DIR:?}/deploy/systemd
command -v systemd-analyze >/dev/null || {
    echo "skipped: no systemd-analyze here"
    exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp "$units"/gemmd*.service "$source"/*.socket "$source"/*.service "$scratch"
mv "$scratch/gemmd@.service" "$scratch/gemmd@0.service" # verify wants an instance

for unit in gemmd.service gemmd@0.service; do
    score=$(systemd-analyze security --offline=yes --threshold=10 --no-pager "$scratch/$unit" | tail -n 1)
    echo "$unit:${score#*:}"
done

# Programs and manuals are not installed here; what is left is about the units.
systemd-analyze verify --man=no "$scratch"/gemmd.service "$scratch"/gemmd@0.service "$scratch"/gemmd.socket "$scratch"/gemmd-mps.service \
    >"$scratch/log" 2>&1 || true
if grep -v 'is not executable' "$scratch/log"; then
    exit 1
fi
