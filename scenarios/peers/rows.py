"""The rows of each area: what is measured, against whom, and how far ahead ours should be."""

import contextlib
import json
import subprocess

import tools
from pairs import alternate, keep, row
from processes import Server, Worker, free_port

# SmolLM2's end tokens: neither side may choose them, so that both write as much as is asked for.
NO_END = ["-f", 'logit_bias={"0":-100,"2":-100}']
SENTENCE = "The train to the coast leaves at half past nine, and nobody at the station knows why it is late."


def bench(scenario, server, *options):
    """One row of `mstar bench` against a server that is let run for as long."""
    command = [tools.mstar(), "bench", scenario, "--server", server.url, "--json", *map(str, options)]
    server.resume()
    try:
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    finally:
        server.pause()
    [measured] = json.loads(told)["rows"]
    if measured["errors"]:
        raise RuntimeError(f"{server.url}: {measured['failures']}")
    return measured


@contextlib.contextmanager
def our_server(args):
    """The deployment that users get, with as many threads; the language model in the file's own blocks, as the peer has it."""
    text = (tools.ROOT / "deployments" / "voice.toml").read_text()
    text = text.replace('[model.smollm2]\nprecision = "bf16"', '[model.smollm2]\nprecision = "q4"')
    if 'precision = "q4"' not in text:
        raise RuntimeError("deployments/voice.toml has changed: the precision of smollm2 is not where it was")
    config = tools.TARGET / "peers" / "voice.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(text.replace("threads = 2", f"threads = {args.threads}"))
    port = free_port()
    command = [tools.mstar(), "serve", "--config", config, "--listen", f"127.0.0.1:{port}", "--log", "warn"]
    with Server(command, port, "/readyz", log=config.with_name("mstar.log")) as server:
        server.pause()
        yield server


@contextlib.contextmanager
def llama_server(args, gguf, slots):
    """llama.cpp's server with as many threads, and slots for as many at a time."""
    port = free_port()
    if not args.wheel:
        command = [tools.llama_cpp(args) / "llama-server", "-m", gguf, "--port", port, "-np", slots, "-c", slots * 1024]
        command += ["-t", args.threads, "-tb", args.threads]
    else:
        command = [args.python, tools.here("llama_server.py"), port, gguf, args.threads, slots]
    with Server(command, port, "/health", log=tools.TARGET / "peers" / "llama.log") as server:
        server.pause()
        yield server


def llama_name(args):
    return "llama.cpp's server (xllamacpp's wheel)" if args.wheel else "llama.cpp's server, built for this machine"


def chat(args):
    gguf = tools.package("smollm2", "smollm2") / "model.gguf"
    made = []
    for at_once, requests, goal in ((1, 2, 1.2), (16, 16, 2.0)):
        if args.only not in ("", f"b{at_once}"):
            continue
        work = ["--mode", "waves", "--concurrency", at_once, "--requests", requests, "--warm-up", 0, "--max-tokens", 128]

        def ask(server, number):
            # Both are asked the same; the next pair is asked something else, so that nobody answers from a cache.
            told = bench("chat", server, *work, "--seed", number + 1, "--model", "smollm2", *NO_END)
            batch = {name: rows for name, rows in told.get("mean_batch", {}).items() if "llm" in name}
            first, gap = told["first_text_ms"]["p50"], told["gap_ms"]["p50"]
            return {"tokens_per_s": told["tokens_per_s"], "first_ms": first, "gap_ms": gap, **batch}

        with our_server(args) as ours, llama_server(args, gguf, at_once) as theirs:
            taken = alternate(lambda number: ask(ours, number), lambda number: ask(theirs, number), args.pairs)
        name = f"SmolLM2-135M GGUF (Q4_1) decode b{at_once}, HTTP, streamed"
        against = llama_name(args)
        made.append(row(name, against, taken, "tokens_per_s", "tokens/s", goal, nice=args.nice))
        made.append(row(f"{name}: first token", against, taken, "first_ms", "ms", better="less", nice=args.nice))
    keep("chat", made)


def whisper(args):
    made = []
    for name, package, tokens in (("tiny.en", "whisper_tiny_en", 64), ("base", "whisper_base", 64)):
        if args.only not in name:
            continue
        theirs = Worker([args.python, tools.here("peer_whisper.py"), tools.ct2(package), args.threads])
        with theirs:
            for precision in ("q8", "bf16", "f32"):
                command = [tools.binary("models", "mstar-scenarios"), "whisper", package]
                with Worker([*command, "--precision", precision, "--threads", args.threads]) as ours:
                    for what, line in (("encoder, 30 s", "encode"), (f"decode, {tokens} tokens", f"decode {tokens}")):
                        times = lambda side: lambda _: {"ms": round(1e3 * best(side, line), 2)}
                        taken = alternate(times(ours), times(theirs), args.pairs)
                        work = f"Whisper {name} {what}, {precision}"
                        goal = None if precision == "f32" else 1.5
                        against = "faster-whisper int8"
                        made.append(row(work, against, taken, "ms", "ms", goal, "less", nice=args.nice))
    keep("whisper", made)


def best(worker, line, times=3):
    """The best of a few: what the work takes when nobody interrupts it."""
    return min(worker.ask(line)["seconds"] for _ in range(times))


def hibari(args):
    with our_server(args) as ours, Worker([args.python, tools.here("peer_hibari.py"), args.threads]) as theirs:

        def our_turn(_):
            measured = bench(
                "speak", ours, "--concurrency", 1, "--requests", 3, "--warm-up", 1, "--prompt", SENTENCE,
            )
            audio = measured["audio_s"] / measured["requests"]
            return {"first": measured["first_audio_ms"]["p50"], "whole": measured["total_ms"]["p50"], "audio_s": audio}

        def their_turn(_):
            told = sorted((theirs.ask(SENTENCE) for _ in range(3)), key=lambda answer: answer["whole_s"])[1]
            return {"first": 1e3 * told["first_s"], "whole": 1e3 * told["whole_s"], "audio_s": told["audio_s"]}

        taken = alternate(our_turn, their_turn, args.pairs)
    against = "hibari-tts (ONNX Runtime), in its process"
    work = "hibari, a sentence of 20 words, ours over HTTP: {}"
    made = [
        row(work.format(what), against, taken, figure, "ms", 1.3, "less", nice=args.nice)
        for what, figure in (("first audio", "first"), ("whole", "whole"))
    ]
    keep("hibari", made)


def converse(args):
    made = []
    for glue in ("sequential", "sentences"):
        wanted = [(n, goal) for n, goal in ((1, 2.0), (8, 3.0)) if args.only in f"{glue} {n}"]
        if not wanted:
            continue
        port = free_port()
        command = [args.python, tools.here("pipeline.py"), port, tools.ct2("whisper_tiny_en")]
        command += [tools.package("smollm2", "smollm2") / "model.gguf", args.threads, glue]
        log = tools.TARGET / "peers" / "pipeline.log"
        against = f"faster-whisper + llama.cpp + hibari-tts, {glue}"
        with our_server(args) as ours, Server(command, port, "/health", log=log) as theirs:
            theirs.pause()
            for at_once, goal in wanted:
                work = ["--concurrency", at_once, "--requests", max(2, at_once), "--warm-up", 0, "--max-tokens", 96]

                def ask(server):
                    told = bench("converse", server, *work)
                    first, whole = told["first_audio_ms"]["p50"], told["total_ms"]["p50"]
                    return {"first": first, "whole": whole, "last": told["total_ms"]["max"], "audio_s": told["audio_s"]}

                taken = alternate(lambda _: ask(ours), lambda _: ask(theirs), args.pairs)
                name = f"spoken conversation, {at_once} at a time: "
                goal = goal if glue == "sequential" else None
                made.append(row(name + "first audio", against, taken, "first", "ms", goal, "less", nice=args.nice))
                made.append(row(name + "whole answer", against, taken, "whole", "ms", None, "less", nice=args.nice))
                made.append(row(name + "last answer", against, taken, "last", "ms", None, "less", nice=args.nice))
    keep("converse", made)


def llama(args):
    """Prompts of 256 tokens, then 32 decode steps, for 1, 4 and 16 sequences; llama.cpp's own tool times its side."""
    built = tools.llama_cpp(args)
    bf16 = tools.llama_bf16(args)
    q4 = bf16.with_name("llama248-q4_k.gguf")
    if not q4.exists():
        subprocess.run([built / "llama-quantize", "--pure", bf16, q4, "Q4_K_S"], check=True, stdout=subprocess.DEVNULL)
    made = []
    goals = {"bf16": {1: 1.3, 4: 1.8, 16: 2.2}, "Q4_K": {1: 1.1, 16: 1.8}}
    for name, gguf in (("bf16", bf16), ("Q4_K", q4)):
        ours = [tools.binary("models", "mstar-scenarios"), "llama", gguf, "--threads", args.threads]
        ours += ["--precision", "bf16" if name == "bf16" else "q4"]
        with Worker(ours) as worker:
            for rows_, goal in goals[name].items():
                if args.only not in f"{name} b{rows_}":
                    continue

                def our_turn(_):
                    told = worker.ask(f"run {rows_} 256 32")
                    return {"decode": told["decode_tokens_per_s"], "prefill": told["prefill_tokens_per_s"]}

                def their_turn(_):
                    command = [built / "llama-batched-bench", "-m", gguf, "-c", 8192, "-b", 2048, "-ub", 512]
                    command += ["-npp", 256, "-ntg", 32, "-npl", rows_, "-t", args.threads, "-tb", args.threads]
                    command += ["--output-format", "jsonl"]
                    told = subprocess.run(map(str, command), check=True, capture_output=True, text=True).stdout
                    line = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
                    return {"decode": line["speed_tg"], "prefill": line["speed_pp"]}

                taken = alternate(our_turn, their_turn, args.pairs)
                work = f"Llama 248 M {name}, {{}} b{rows_}"
                against = "llama.cpp, built for this machine"
                made.append(row(work.format("decode"), against, taken, "decode", "tokens/s", goal, nice=args.nice))
                wanted = 1.1 if name == "bf16" and rows_ != 4 else None
                made.append(
                    row(work.format("prefill 256"), against, taken, "prefill", "tokens/s", wanted, nice=args.nice)
                )
    keep("llama", made)


def transformers(args):
    """The same network in transformers, in its process: 32 decode steps behind a short prompt, because where the processor
    has no bf16 it reads seven tokens a second."""
    bf16 = tools.llama_bf16(args)
    ours = [tools.binary("models", "mstar-scenarios"), "llama", bf16, "--threads", args.threads]
    theirs = [args.python, tools.here("peer_transformers.py"), args.threads, "bf16"]
    with Worker(ours) as our_side, Worker(theirs) as their_side:
        for rows_, goal in ((1, 2.3), (4, 3.5), (16, 4.5)):
            if args.only and args.only != f"b{rows_}":
                continue
            turn = lambda side: lambda _: {"decode": side.ask(f"run {rows_} 16 32")["decode_tokens_per_s"]}
            taken = alternate(turn(our_side), turn(their_side), args.pairs)
            work = f"Llama 248 M bf16, decode b{rows_}"
            keep("transformers", [row(work, "transformers bf16", taken, "decode", "tokens/s", goal, nice=args.nice)])


LAYERS = [
    ("ViT-L block, 576 tokens, f32", "vit f32", 1.2),
    ("ViT-L block, 576 tokens, bf16", "vit bf16", 1.1),
    ("attention 512 x 512, 16 heads, f32", "attention f32", 1.3),
    ("SNAC decoder, 4 s, f32", "snac_4s f32", 1.5),
    ("SNAC decoder, a window of 28 tokens, f32", "snac_window f32", 2.0),
    ("FLUX-VAE-size conv2d stack, f32", "vae f32", None),
    ("FLUX-VAE-size conv2d stack, bf16", "vae bf16", 1.0),
]


def layers(args):
    ours = [tools.binary("models", "mstar-scenarios"), "layers", "--threads", args.threads]
    with Worker(ours) as our_side, Worker([args.python, tools.here("peer_torch.py"), args.threads]) as their_side:
        for work, line, goal in LAYERS:
            if args.only not in work:
                continue
            times = lambda side: lambda _: {"ms": round(1e3 * best(side, line), 3)}
            taken = alternate(times(our_side), times(their_side), args.pairs)
            # Row by row: the last ones can take a quarter of an hour where the processor has no bf16.
            keep("layers", [row(work, "torch", taken, "ms", "ms", goal, "less", nice=args.nice)])
