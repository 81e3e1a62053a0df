"""Word error rates of a real server, after Whisper's English normaliser, at temperature 0.

Round trip: 20 sentences through `speak`, what was spoken through `transcribe`, against the sentences. Recordings: the
ten of Debian's pocketsphinx-testdata through `transcribe`, and through faster-whisper (beam 1) with the same weights in
the same run. Prints JSON; exits with 1 when a rate is above its bound.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import requests
from whisper_normalizer.english import EnglishTextNormalizer

SERVER = os.environ["MSTAR_SERVER"]
HEADERS = {"authorization": f"Bearer {os.environ.get('MSTAR_API_KEY', 'none')}"}
NORMALISE = EnglishTextNormalizer()

# Names, numbers and questions among them.
SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "What is the capital of France?",
    "Neil Armstrong walked on the moon in 1969.",
    "The train to London leaves at half past seven.",
    "Could you please pass me the salt and pepper?",
    "There are 365 days in a year.",
    "Mary has two brothers and three sisters.",
    "Water boils at one hundred degrees Celsius.",
    "I would like a cup of coffee with milk, please.",
    "How many people live in New York City?",
    "The library is closed on Sundays.",
    "She bought 12 eggs and a loaf of bread.",
    "Albert Einstein was born in Germany.",
    "It will probably rain tomorrow afternoon.",
    "Why did the chicken cross the road?",
    "My favorite color is blue, but I also like green.",
    "The meeting starts at nine o'clock on Monday morning.",
    "George Washington was the first president of the United States.",
    "Please turn off the lights before you leave the room.",
    "The children played football in the park until it was dark.",
]

ROUND_TRIP_BOUND = 0.05
# How much worse than the peer the recordings may be.
PEER_MARGIN = 0.01


def distance(expected, got):
    """Returns the edit distance between two lists of words."""
    row = list(range(len(got) + 1))
    for i, word in enumerate(expected, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (word != other))
    return row[-1]


class Rate:
    """Sums errors and words."""

    def __init__(self):
        self.errors, self.words, self.wrong = 0, 0, []

    def add(self, name, expected, got):
        expected, got = NORMALISE(expected).split(), NORMALISE(got).split()
        errors = distance(expected, got)
        self.errors += errors
        self.words += len(expected)
        if errors:
            self.wrong.append({"of": name, "expected": " ".join(expected), "got": " ".join(got), "errors": errors})

    @property
    def value(self):
        return self.errors / max(1, self.words)

    def json(self):
        return {"wer": round(self.value, 4), "errors": self.errors, "words": self.words, "wrong": self.wrong}


def speak(text):
    body = {"model": "voice", "voice": "heart", "input": text, "response_format": "wav"}
    answer = requests.post(f"{SERVER}/v1/audio/speech", json=body, headers=HEADERS, timeout=600)
    answer.raise_for_status()
    return answer.content


def transcribe(name, data):
    form = {"model": "voice", "temperature": "0"}
    files = {"file": (name, data)}
    answer = requests.post(f"{SERVER}/v1/audio/transcriptions", data=form, files=files, headers=HEADERS, timeout=600)
    answer.raise_for_status()
    return answer.json()["text"]


def round_trip():
    rate = Rate()
    for sentence in SENTENCES:
        rate.add(sentence, sentence, transcribe("speech.wav", speak(sentence)))
    return rate


def references(folder):
    """Yields the ten recordings with what is said in them."""
    for transcription, wavs in (("librivox/transcription", "librivox"), ("cards/cards.transcription", "cards")):
        for line in (folder / transcription).read_text().splitlines():
            said, _, name = line.rpartition("(")
            yield folder / wavs / f"{name.rstrip(')').strip()}.wav", said.replace("<s>", "").replace("</s>", "").strip()


def recordings(folder, weights):
    from faster_whisper import WhisperModel

    peer = WhisperModel(str(weights), device="cpu", compute_type="float32")
    own_rate, peer_rate, own_s, peer_s = Rate(), Rate(), 0.0, 0.0
    for path, said in references(folder):
        began = time.monotonic()
        own_rate.add(path.name, said, transcribe(path.name, path.read_bytes()))
        between = time.monotonic()
        segments, _ = peer.transcribe(str(path), beam_size=1, temperature=0.0, language="en")
        peer_rate.add(path.name, said, " ".join(segment.text for segment in segments))
        own_s += between - began
        peer_s += time.monotonic() - between
    return own_rate, peer_rate, own_s, peer_s


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", type=Path, help="the folder test/data of pocketsphinx-testdata")
    parser.add_argument("--weights", type=Path, help="the same Whisper weights in CTranslate2's format, for the peer")
    parser.add_argument("--out", type=Path, help="write the JSON here as well")
    args = parser.parse_args()

    trip = round_trip()
    report = {"round_trip": trip.json() | {"bound": ROUND_TRIP_BOUND}}
    good = trip.value <= ROUND_TRIP_BOUND
    if args.recordings:
        own, peer, own_s, peer_s = recordings(args.recordings, args.weights)
        good &= own.value <= peer.value + PEER_MARGIN
        report["recordings"] = {
            "mstar": own.json() | {"seconds": round(own_s, 2)},
            "faster_whisper": peer.json() | {"seconds": round(peer_s, 2)},
            "margin": PEER_MARGIN,
        }
    report["ok"] = good
    text = json.dumps(report, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
