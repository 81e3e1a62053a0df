"""The public clients as judges: the unmodified `openai` package, sync and async, streaming and not, and M*'s own
`MStarClient`, against the server in MSTAR_SERVER with real weights.

Every check asserts content, not only shape. Prints one line per check and exits with 1 if any failed.
"""

import asyncio
import base64
import io
import os
import re
import sys
import time
import traceback
import wave

import numpy as np
import openai
from mstar.client import MStarClient
from mstar.client.types import AudioChunk, TextChunk

SERVER = os.environ["MSTAR_SERVER"]
KEY = os.environ.get("MSTAR_API_KEY", "none")
CLIENT = openai.OpenAI(base_url=f"{SERVER}/v1", api_key=KEY, timeout=300, max_retries=0)
ASYNC = openai.AsyncOpenAI(base_url=f"{SERVER}/v1", api_key=KEY, timeout=300, max_retries=0)
NATIVE = MStarClient(SERVER, timeout=300)

SENTENCE = "The quick brown fox jumps over the lazy dog."
QUESTION = "What is the capital of France?"
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def words(text):
    return re.findall(r"[a-z0-9']+", text.lower())


def heard(expected, text, share):
    """Asserts that at least this share of the expected words, in any order, is in the text."""
    missing = list(words(text))
    found = 0
    for word in words(expected):
        if word in missing:
            missing.remove(word)
            found += 1
    assert found >= share * len(words(expected)), f"{text!r} is not {expected!r}"


def sound(data):
    """Reads a wav file and asserts that it is sound, not silence. Returns seconds."""
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2), file.getparams()
        rate = file.getframerate()
        # A streamed file does not know its length: what follows the header is the sound.
        samples = np.frombuffer(data[44:], dtype="<i2").astype(np.float64) / 32768
    return loud(samples, rate)


def loud(samples, rate):
    seconds = len(samples) / rate
    assert 0.3 < seconds < 120, f"{seconds} s of sound"
    assert 0.005 < np.sqrt(np.mean(samples**2)) < 0.6, "silence or noise"
    return seconds


def pcm(data, rate=24_000):
    return loud(np.frombuffer(data, dtype="<i2").astype(np.float64) / 32768, rate)


def spoken(text, **options):
    return CLIENT.audio.speech.create(model="hibari", voice="heart", input=text, response_format="wav", **options).content


def user(text):
    return [{"role": "user", "content": text}]


# --- models and errors ---


@check
def models_are_listed():
    ids = {model.id for model in CLIENT.models.list()}
    assert {"smollm2", "whisper", "hibari", "voice"} <= ids, ids
    assert CLIENT.models.retrieve("voice").owned_by == "mstar"


@check
def errors_have_their_classes_and_fields():
    def refused(kind, param, **fields):
        try:
            CLIENT.chat.completions.create(**({"model": "smollm2", "messages": user("x")} | fields))
        except kind as error:
            assert error.param == param and param in error.message, error
            return
        raise AssertionError(f"{fields} was taken")

    refused(openai.NotFoundError, "model", model="nobody")
    refused(openai.UnprocessableEntityError, "temperature", temperature=9)
    refused(openai.UnprocessableEntityError, "messages", messages=[])
    refused(openai.UnprocessableEntityError, "colour", extra_body={"colour": "red"})
    try:
        CLIENT.audio.transcriptions.create(model="whisper", file=("a.wav", b"RIFF, but no sound"))
    except openai.UnprocessableEntityError as error:
        assert error.param == "file", error
    else:
        raise AssertionError("noise was taken for a file")


# --- chat ---


@check
def chat_answers():
    answer = CLIENT.chat.completions.create(model="smollm2", messages=user(QUESTION), temperature=0, max_tokens=40)
    choice = answer.choices[0]
    assert "Paris" in choice.message.content, choice.message.content
    assert choice.finish_reason == "stop" and answer.object == "chat.completion"
    usage = answer.usage
    assert usage.prompt_tokens > 5 and usage.completion_tokens > 3, usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert answer._request_id


@check
def chat_streams_the_same_text():
    ask = {"model": "voice", "messages": user(QUESTION), "temperature": 0, "max_tokens": 40}
    whole = CLIENT.chat.completions.create(**ask)
    chunks = list(CLIENT.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(deltas) == whole.choices[0].message.content
    assert sum(1 for delta in deltas if delta) > 3, "it came in one piece"
    assert chunks[-1].usage == whole.usage and not chunks[-1].choices
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]


@check
def chat_keeps_the_turns():
    turns = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "My name is Ada. Remember it."},
        {"role": "assistant", "content": "Nice to meet you, Ada."},
        {"role": "user", "content": "What is my name?"},
    ]
    answer = CLIENT.chat.completions.create(model="smollm2", messages=turns, temperature=0, max_tokens=40)
    assert "Ada" in answer.choices[0].message.content, answer.choices[0].message.content


@check
def chat_obeys_bounds_and_stop_strings():
    ask = {"model": "smollm2", "messages": user("Count: one, two, three, four,"), "temperature": 0}
    short = CLIENT.chat.completions.create(**ask, max_completion_tokens=5)
    assert short.choices[0].finish_reason == "length" and short.usage.completion_tokens == 5
    whole = CLIENT.chat.completions.create(**ask, max_tokens=40).choices[0].message.content
    stop = whole.split()[3]
    cut = CLIENT.chat.completions.create(**ask, max_tokens=40, stop=[stop]).choices[0]
    assert cut.finish_reason == "stop" and cut.message.content == whole[: whole.index(stop)], cut


@check
def chat_samples_by_seed():
    ask = {"model": "smollm2", "messages": user("Write a sentence about rain."), "temperature": 1.0, "max_tokens": 24}
    one, same, other = (CLIENT.chat.completions.create(**ask, seed=seed) for seed in (7, 7, 8))
    assert one.choices[0].message.content == same.choices[0].message.content
    assert one.choices[0].message.content != other.choices[0].message.content
    several = CLIENT.chat.completions.create(**ask, seed=7, n=2)
    assert [choice.index for choice in several.choices] == [0, 1]
    assert several.choices[0].message.content == one.choices[0].message.content


@check
def chat_tells_probabilities():
    ask = {"model": "smollm2", "messages": user(QUESTION), "temperature": 0, "max_tokens": 12}
    answer = CLIENT.chat.completions.create(**ask, logprobs=True, top_logprobs=3)
    tokens = answer.choices[0].logprobs.content
    text = answer.choices[0].message.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode().startswith(text), (tokens, text)
    for token in tokens:
        assert -50 < token.logprob <= 0 and len(token.top_logprobs) == 3, token
        assert max(top.logprob for top in token.top_logprobs) == token.top_logprobs[0].logprob >= token.logprob - 1e-4


# --- speech and transcription ---


@check
def speech_in_every_format():
    seconds = sound(spoken(SENTENCE))
    slow = sound(spoken(SENTENCE, speed=0.7))
    assert slow > seconds * 1.2, (slow, seconds)
    ask = {"model": "voice", "voice": "heart", "input": SENTENCE}
    assert CLIENT.audio.speech.create(**ask, response_format="flac").content[:4] == b"fLaC"
    with CLIENT.audio.speech.with_streaming_response.create(**ask, response_format="pcm") as stream:
        pieces = [piece for piece in stream.iter_bytes(4096)]
    assert abs(pcm(b"".join(pieces)) - seconds) < 0.5
    with CLIENT.audio.speech.with_streaming_response.create(**ask, response_format="pcm", stream_format="sse") as stream:
        lines = [line for line in stream.iter_lines() if line]
    assert lines[0].startswith('data: {"') and "speech.audio.done" in lines[-1]


@check
def transcription_in_every_format():
    recording = ("speech.wav", spoken(SENTENCE))
    for model in ("whisper", "voice"):
        heard(SENTENCE, CLIENT.audio.transcriptions.create(model=model, file=recording).text, 0.85)
    ask = {"model": "whisper", "file": recording}
    heard(SENTENCE, CLIENT.audio.transcriptions.create(**ask, response_format="text"), 0.85)
    verbose = CLIENT.audio.transcriptions.create(**ask, response_format="verbose_json")
    heard(SENTENCE, verbose.text, 0.85)
    heard(SENTENCE, " ".join(segment.text for segment in verbose.segments), 0.85)
    assert 1 < float(verbose.duration) < 20 and verbose.segments[-1].end <= float(verbose.duration) + 1, verbose
    assert "-->" in CLIENT.audio.transcriptions.create(**ask, response_format="srt")
    assert CLIENT.audio.transcriptions.create(**ask, response_format="vtt").startswith("WEBVTT")
    events = list(CLIENT.audio.transcriptions.create(**ask, stream=True))
    assert events[-1].type == "transcript.text.done"
    heard(SENTENCE, events[-1].text, 0.85)
    assert "".join(event.delta for event in events[:-1]).strip() == events[-1].text
    flac = CLIENT.audio.speech.create(model="hibari", voice="heart", input=SENTENCE, response_format="flac").content
    heard(SENTENCE, CLIENT.audio.transcriptions.create(model="whisper", file=("speech.flac", flac)).text, 0.85)


# --- chat with audio ---


def asked_aloud():
    data = base64.b64encode(spoken(QUESTION)).decode()
    return [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}]}]


@check
def chat_hears_and_speaks():
    ask = {"model": "voice", "temperature": 0, "max_tokens": 40}
    answer = CLIENT.chat.completions.create(
        **ask, messages=asked_aloud(), modalities=["text", "audio"], audio={"voice": "heart", "format": "wav"}
    )
    audio = answer.choices[0].message.audio
    assert "Paris" in audio.transcript, audio.transcript
    data = base64.b64decode(audio.data)
    sound(data)
    heard(audio.transcript, CLIENT.audio.transcriptions.create(model="whisper", file=("reply.wav", data)).text, 0.6)
    text = CLIENT.chat.completions.create(**ask, messages=asked_aloud())
    assert "Paris" in text.choices[0].message.content, text


@check
def chat_streams_its_voice():
    chunks = CLIENT.chat.completions.create(
        model="voice", temperature=0, max_tokens=40, messages=asked_aloud(), stream=True,
        modalities=["text", "audio"], audio={"voice": "heart", "format": "pcm16"},
    )
    text, data = "", b""
    for chunk in chunks:
        audio = chunk.choices[0].delta.to_dict().get("audio") or {} if chunk.choices else {}
        text += audio.get("transcript") or ""
        data += base64.b64decode(audio.get("data") or "")
    assert "Paris" in text, text
    pcm(data)


# --- async ---


@check
def async_clients_at_once():
    async def chat(prompt, stream):
        ask = {"model": "smollm2", "messages": user(prompt), "temperature": 0, "max_tokens": 24}
        if not stream:
            return (await ASYNC.chat.completions.create(**ask)).choices[0].message.content
        chunks = await ASYNC.chat.completions.create(**ask, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])

    async def story():
        prompts = [QUESTION, "Who wrote Romeo and Juliet?", "Name a colour."]
        chats = [chat(prompt, stream) for prompt in prompts for stream in (False, True)]
        speech = ASYNC.audio.speech.create(model="hibari", voice="heart", input=SENTENCE, response_format="wav")
        *texts, wav = await asyncio.gather(*chats, speech)
        assert texts[0::2] == texts[1::2], "streamed and whole differ"
        assert "Paris" in texts[0] and "Shakespeare" in texts[2], texts
        heard(SENTENCE, (await ASYNC.audio.transcriptions.create(model="whisper", file=("a.wav", wav.content))).text, 0.85)
        events = await ASYNC.audio.transcriptions.create(model="whisper", file=("a.wav", wav.content), stream=True)
        heard(SENTENCE, [event async for event in events][-1].text, 0.85)
        ids = {model.id async for model in ASYNC.models.list()}
        assert "voice" in ids
        try:
            await ASYNC.models.retrieve("nobody")
        except openai.NotFoundError:
            pass
        else:
            raise AssertionError("nobody is a model")

    asyncio.run(story())


# --- M*'s own client ---


@check
def native_client_chats():
    assert NATIVE.health()
    result = NATIVE.chat(QUESTION, temperature=0, max_output_tokens=40)
    assert "Paris" in result.text and result.request_id, result
    result = NATIVE.chat(QUESTION, model="smollm2", temperature=0, max_output_tokens=40)
    assert "Paris" in result.text, result


@check
def native_client_speaks():
    speech = NATIVE.tts(SENTENCE, voice="heart")
    pcm(speech.pcm, speech.sample_rate)
    text = NATIVE.generate(audio=speech.wav_bytes(), output_modalities=("text",)).text
    heard(SENTENCE, text, 0.85)


@check
def native_client_streams():
    pieces = list(NATIVE.stream(text=QUESTION, temperature=0, max_output_tokens=40, request_id="judge-1"))
    assert len(pieces) > 3 and all(isinstance(piece, TextChunk) for piece in pieces)
    assert "Paris" in "".join(piece.text for piece in pieces)
    question = spoken(QUESTION)
    both = list(
        NATIVE.stream(audio=question, output_modalities=("text", "audio"), temperature=0, max_output_tokens=40)
    )
    assert "Paris" in "".join(piece.text for piece in both if isinstance(piece, TextChunk))
    audio = [piece for piece in both if isinstance(piece, AudioChunk)]
    pcm(b"".join(piece.pcm for piece in audio), audio[0].sample_rate)


@check
def native_client_hears_of_errors():
    for wrong in ({"text": "x", "model": "nobody"}, {"text": "x", "warmth": 1}, {"text": "x", "temperature": "hot"}):
        try:
            NATIVE.generate(**wrong)
        except Exception as error:
            assert 400 <= error.response.status_code < 500, error
            continue
        raise AssertionError(f"{wrong} was taken")
    assert NATIVE.health()


def main():
    chosen = [function for function in CHECKS if not sys.argv[1:] or function.__name__ in sys.argv[1:]]
    failed = 0
    for function in chosen:
        began = time.monotonic()
        try:
            function()
            outcome = "ok"
        except Exception:
            traceback.print_exc()
            outcome = "FAILED"
            failed += 1
        print(f"{outcome:6} {function.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} checks passed")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
