#!/usr/bin/env python3
"""Draws the rows of scenarios/results as bars for the README: `scenarios/peers/draw.py [OUT.svg]`.

A bar is how many times better ours is than the peer in the same run; the line at 1 is the peer, a tick is the goal.
"""

import html
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, LABEL, LINE, TOP = 1120, 610, 24, 46
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .quiet { fill: #656d76; font-size: 12px }
.won { fill: #1a7f5a } .lost { fill: #c2671f } .peer { stroke: #656d76 } .goal { stroke: #1f2328; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet { fill: #9198a1 } .won { fill: #3fb68b } .lost { fill: #e0924a }
  .peer { stroke: #9198a1 } .goal { stroke: #e6edf3 }
}
"""


def rows():
    """All rows that have a goal, file by file."""
    for path in sorted((ROOT / "scenarios" / "results").glob("*.json")):
        told = json.loads(path.read_text())
        yield from (row for row in told.get("rows", []) if row.get("goal"))


def draw(shown):
    most = max([4.0, *(max(row["ratio"], row["goal"]) for row in shown)])
    scale = (WIDTH - LABEL - 70) / most
    height = TOP + LINE * len(shown) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<style>{STYLE}</style>",
        f'<text x="8" y="20">Times as fast as the peer, in the same run (median of alternating pairs)</text>',
        f'<text class="quiet" x="{LABEL + scale}" y="{TOP - 6}" text-anchor="middle">the peer</text>',
    ]
    for number, row in enumerate(shown):
        y = TOP + LINE * number
        length, goal = row["ratio"] * scale, LABEL + row["goal"] * scale
        kind = "won" if row["ratio"] >= 1 else "lost"
        label = html.escape(f"{row['work']} / {row['against']}")
        parts += [
            f'<text class="quiet" x="{LABEL - 8}" y="{y + 16}" text-anchor="end">{label}</text>',
            f'<rect class="{kind}" x="{LABEL}" y="{y + 4}" width="{length:.1f}" height="{LINE - 8}" rx="2"/>',
            f'<line class="goal" x1="{goal:.1f}" x2="{goal:.1f}" y1="{y + 2}" y2="{y + LINE - 2}"/>',
            f'<text x="{max(LABEL + length, goal) + 8:.1f}" y="{y + 16}">{row["ratio"]:.2f}</text>',
        ]
    bottom = TOP + LINE * len(shown)
    parts.append(f'<line class="peer" x1="{LABEL + scale:.1f}" x2="{LABEL + scale:.1f}" y1="{TOP}" y2="{bottom}"/>')
    parts.append(f'<text class="quiet" x="{LABEL}" y="{bottom + 20}">tick: the goal</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "img" / "speed.svg"
    shown = list(rows())
    if not shown:
        sys.exit("scenarios/results has no row with a goal")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(draw(shown))
    print(out)


if __name__ == "__main__":
    main()
