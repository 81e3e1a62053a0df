"""faster-whisper's networks, int8: `peer_whisper.py FOLDER THREADS`, then lines `encode` and `decode TOKENS`."""

import json
import sys
import time

import ctranslate2
import numpy
from faster_whisper import WhisperModel

folder, threads = sys.argv[1], int(sys.argv[2])
whisper = WhisperModel(folder, device="cpu", compute_type="int8", cpu_threads=threads, num_workers=1)
tokenizer = whisper.hf_tokenizer
bands = whisper.feature_extractor.mel_filters.shape[0]
mel = numpy.random.RandomState(1).uniform(-1, 1, (bands, 3000)).astype(numpy.float32)
context = whisper.encode(mel)
end = tokenizer.token_to_id("<|endoftext|>")
opening = ["<|startoftranscript|>"]
if whisper.model.is_multilingual:
    opening += ["<|en|>", "<|transcribe|>"]
opening = [tokenizer.token_to_id(name) for name in opening + ["<|notimestamps|>"]]


def encode():
    global context
    context = whisper.encode(mel)
    return {}


def decode(tokens):
    # The end is suppressed, so that as many tokens come as are asked for; of `max_length` CTranslate2 gives them half.
    written = whisper.model.generate(
        context, [opening], beam_size=1, suppress_tokens=[-1, end], suppress_blank=False,
        max_length=2 * tokens,
    )
    count = len(written[0].sequences_ids[0])
    if count != tokens:
        raise SystemExit(f"{count} tokens were decoded, not {tokens}")
    return {"tokens": tokens}


print(json.dumps({"version": ctranslate2.__version__}), flush=True)
for line in sys.stdin:
    what, *numbers = line.split()
    began = time.perf_counter()
    told = encode() if what == "encode" else decode(int(numbers[0]))
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, **told}), flush=True)
