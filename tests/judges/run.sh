#!/usr/bin/env bash
# The public clients as judges: the unmodified `openai` package and M*'s own client against a real server.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
target="${CARGO_TARGET_DIR:-$here/../../target}"
venv="$target/judges/venv"
if [ ! -f "$venv/done" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q openai==3.57.0 requests==2.34.2 numpy==2.4.6
    "$venv/bin/pip" install -q --no-deps --ignore-requires-python mstar-ai==0.2.1
    touch "$venv/done"
fi
exec bash "$here/with_server.sh" "$venv/bin/python" "$here/judge.py" "$@"
