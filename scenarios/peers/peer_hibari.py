"""hibari-tts on ONNX Runtime: `peer_hibari.py THREADS`, then a text a line; times its first piece and the whole."""

import json
import sys
import time

from hibari import SAMPLE_RATE, Hibari

voice = Hibari(threads=int(sys.argv[1]))
voice("Good morning.")
print(json.dumps({}), flush=True)
for line in sys.stdin:
    began, first, samples = time.perf_counter(), None, 0
    for piece in voice.stream(line.strip(), seed=1):
        first = first or time.perf_counter() - began
        samples += len(piece)
    whole = time.perf_counter() - began
    print(json.dumps({"first_s": first, "whole_s": whole, "audio_s": samples / SAMPLE_RATE}), flush=True)
