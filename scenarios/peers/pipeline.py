"""The pipeline that a user would glue together: faster-whisper hears, llama.cpp answers, hibari-tts speaks.

`pipeline.py PORT WHISPER GGUF THREADS GLUE` serves `POST /generate` as M* does, one request after the other, because each of
its parts takes all threads. GLUE is `sequential` (the answer is spoken once it is written) or `sentences`
(each sentence is spoken as soon as it is written).
"""

import base64
import io
import json
import queue
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy
import xllamacpp
from faster_whisper import WhisperModel
from hibari import SAMPLE_RATE, Hibari

port, whisper_folder, gguf, threads, glue = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
STYLE = "You are a helpful AI assistant. Answer in one or two short sentences."
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")

whisper = WhisperModel(whisper_folder, device="cpu", compute_type="int8", cpu_threads=threads)
voice = Hibari(threads=threads)
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = gguf, ["127.0.0.1"], 0
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.n_parallel, params.n_ctx = 1, 2048
llama = xllamacpp.Server(params)
turn = threading.Lock()


def heard(recording):
    segments, _ = whisper.transcribe(io.BytesIO(recording), language="en", beam_size=1, temperature=0.0)
    return "".join(segment.text for segment in segments).strip()


def written(question, most):
    """Yields the answer piece by piece, as it is written."""
    messages = [{"role": "system", "content": STYLE}, {"role": "user", "content": question}]
    request = {"messages": messages, "temperature": 0, "max_tokens": most, "stream": True}
    pieces = queue.Queue()

    def take(chunk):
        for event in chunk if isinstance(chunk, list) else [chunk]:
            event = json.loads(event) if isinstance(event, (str, bytes)) else event
            for choice in event.get("choices", []):
                if choice["delta"].get("content"):
                    pieces.put(choice["delta"]["content"])
        return False

    def write():
        llama.handle_chat_completions(request, take)
        pieces.put(None)

    threading.Thread(target=write, daemon=True).start()
    yield from iter(pieces.get, None)


def spoken(text):
    for samples in voice.stream(text, seed=1):
        yield (numpy.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def answer(recording, most):
    """Yields lines of text and audio."""
    question = heard(recording)
    yield "detail", question.encode(), {}
    text, said = "", ""
    for piece in written(question, most):
        text += piece
        yield "text", piece.encode(), {}
        if glue == "sentences":
            *whole, said_next = SENTENCE_END.split(text[len(said):])
            for sentence in whole:
                for samples in spoken(sentence):
                    yield "audio", samples, {"sample_rate": SAMPLE_RATE, "num_channels": 1}
            said = text[: len(text) - len(said_next)]
    for samples in spoken(text[len(said):]):
        yield "audio", samples, {"sample_rate": SAMPLE_RATE, "num_channels": 1}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        known = self.path == "/health"
        self.send_response(200 if known else 404)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        recording = body[body.index(b"RIFF"):]
        most = int(re.search(rb'"max_output_tokens":\s*(\d+)', body)[1])
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        with turn:
            for modality, data, metadata in answer(recording, most):
                line = {"modality": modality, "data": base64.b64encode(data).decode(), "metadata": metadata}
                self.chunk(json.dumps(line).encode() + b"\n")
        self.chunk(b"")

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *_):
        pass


ThreadingHTTPServer.request_queue_size = 64
ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
