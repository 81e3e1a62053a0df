#!/usr/bin/env bash
# Runs a command against a server of the default deployment: starts `mstar serve` on a free port, waits until its walks
# can be served (the first time it fetches the weights), exports MSTAR_SERVER, and stops it afterwards.
# MSTAR_BIN names another program than the development build (whose kernels are optimised, too); MSTAR_CONFIG another deployment file.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
target="${CARGO_TARGET_DIR:-$root/target}"
if [ -z "${MSTAR_BIN:-}" ]; then
    cargo build --manifest-path "$root/Cargo.toml" -p mstar-serve
    MSTAR_BIN="$target/debug/mstar"
fi
port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"
export MSTAR_SERVER="http://127.0.0.1:$port"
mkdir -p "$target/judges"
log="$target/judges/server.log"
"$MSTAR_BIN" serve ${MSTAR_CONFIG:+--config "$MSTAR_CONFIG"} --listen "127.0.0.1:$port" >"$log" 2>&1 &
server=$!
stop() {
    kill -INT "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
}
trap stop EXIT

python3 - "$MSTAR_SERVER/readyz" "$server" <<'PYTHON' || { echo "the server did not become ready; its log:" >&2; tail -n 50 "$log" >&2; exit 1; }
import os, sys, time, urllib.error, urllib.request
url, server = sys.argv[1], int(sys.argv[2])
until = time.monotonic() + 900
while time.monotonic() < until:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            sys.exit(0 if answer.status == 200 else 1)
    except (urllib.error.URLError, OSError):
        pass
    try:
        os.kill(server, 0)
    except ProcessLookupError:
        sys.exit("the server ended")
    time.sleep(0.2)
sys.exit("not ready in time")
PYTHON

"$@"
