#!/usr/bin/env python3
"""Measures our work beside its public peers': `scenarios/peers/run.py chat whisper hibari converse`.

Ours and theirs alternate, never run at the same time, and do the same work with as many threads. What comes of it goes
into scenarios/results. The peers are installed below `target` on first use; our binaries are built in release mode.
"""

import argparse
import os

import rows
import tools

AREAS = {
    "chat": (rows.chat, "SmolLM2 through the HTTP endpoint against llama.cpp's server"),
    "whisper": (rows.whisper, "Whisper's encoder and decoder against faster-whisper"),
    "hibari": (rows.hibari, "a spoken sentence against hibari-tts"),
    "converse": (rows.converse, "a spoken conversation against a pipeline of the three"),
    "llama": (rows.llama, "a Llama of 248 M parameters against llama.cpp"),
    "transformers": (rows.transformers, "the same network against transformers"),
    "layers": (rows.layers, "single layers against torch"),
}


def main():
    about = "\n".join(f"  {name:10}{text}" for name, (_, text) in AREAS.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"areas:\n{about}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("areas", nargs="+", choices=AREAS, metavar="AREA")
    parser.add_argument("--pairs", type=int, default=5, help="alternating pairs of each row (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="compute threads of either side (default 2)")
    parser.add_argument("--nice", type=int, default=0, help="priority of both sides, e.g. -10 on a busy machine")
    parser.add_argument("--venv", help="a Python environment that has the peers already")
    parser.add_argument("--llama-cpp", help="a folder with llama.cpp's programs, built for this machine")
    parser.add_argument("--wheel", action="store_true", help="llama.cpp as xllamacpp's wheel has it, for any processor")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    args = parser.parse_args()
    if args.nice:
        os.setpriority(os.PRIO_PROCESS, 0, args.nice)
    args.python = tools.python(args.venv)
    for area in args.areas:
        AREAS[area][0](args)


if __name__ == "__main__":
    main()
