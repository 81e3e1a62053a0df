"""Alternates two measurements, A B A B, and keeps what came of them as rows of a result file."""

import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "scenarios" / "results"


def say(text):
    """Tells how it goes, on standard error."""
    print(text, file=sys.stderr, flush=True)


def load():
    """The load average of the last minute."""
    return round(os.getloadavg()[0], 2)


def machine():
    """What the machine is."""
    name = next(
        (line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal"))
    flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags"))
    tiers = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "avx512_vnni") if f" {flag}" in flags]
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**20, 1),
        "instructions": tiers,
        "system": f"{platform.system()} {platform.release()}",
    }


def commit():
    """The commit that is measured, with a mark where the tree differs from it."""
    git = lambda *args: subprocess.run(["git", "-C", ROOT, *args], capture_output=True, text=True).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!scenarios/results", ":!docs")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def alternate(ours, theirs, pairs):
    """Calls ours, theirs, ours, theirs, and so on, each with its pair's number. Each returns a dict of figures."""
    ours(0), theirs(0)  # caches and clocks are warm before the first pair
    taken = []
    for number in range(1, pairs + 1):
        before = load()
        a, b = ours(number), theirs(number)
        taken.append((a, b, (before, load())))
        say(f"  pair {number} of {pairs}: ours {a}, theirs {b}, load {taken[-1][2]}")
    return taken


def row(work, against, taken, figure, unit, goal=None, better="more", **more):
    """A row from alternating pairs. The ratio says how many times better ours is: above 1 it wins."""
    pairs = [(a[figure], b[figure]) for a, b, _ in taken]
    ratios = [a / b if better == "more" else b / a for a, b in pairs]
    loads = [value for _, _, both in taken for value in both]
    median = statistics.median
    made = {
        "work": work,
        "against": against,
        "unit": unit,
        "better": better,
        "ours": round(median(a for a, _ in pairs), 4),
        "theirs": round(median(b for _, b in pairs), 4),
        "ratio": round(median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "goal": goal,
        "pairs": len(pairs),
        "load": [min(loads), max(loads)],
        **more,
    }
    wanted = f", goal {goal}" if goal else ""
    say(f"{work} against {against}: ours {made['ours']}, theirs {made['theirs']} {unit}: {made['ratio']}x{wanted}")
    return made


def keep(name, rows):
    """Writes rows into a result file; rows of the same work against the same peer are replaced."""
    path = RESULTS / f"{name}.json"
    stamp = {"commit": commit(), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")}
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    new = {(r["work"], r["against"]): {**r, **stamp} for r in rows}
    kept = [new.pop((r["work"], r["against"]), r) for r in old] + list(new.values())
    RESULTS.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "commit": stamp["commit"], "rows": kept}, indent=1) + "\n")
    say(f"written to {path.relative_to(ROOT)}")
