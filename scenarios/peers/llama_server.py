"""llama.cpp's own server, as `xllamacpp` brings it: `llama_server.py PORT GGUF THREADS SLOTS`."""

import signal
import sys

import xllamacpp

port, gguf, threads, slots = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
params = xllamacpp.CommonParams()
params.model.path = gguf
params.hostnames, params.port = ["127.0.0.1"], port
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.n_parallel, params.n_ctx = slots, slots * 1024
params.warmup = True
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
signal.pause()
