"""Servers and workers in processes of their own: only one of them runs at a time, and none outlives the driver."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from pairs import say

PR_SET_PDEATHSIG = 1


def free_port():
    """A port of the loopback that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _dies_with_its_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """A process with a group of its own. Between measurements it is stopped, so that it cannot take time."""

    def __init__(self, command, **options):
        self.child = subprocess.Popen(
            [str(part) for part in command], start_new_session=True, preexec_fn=_dies_with_its_parent, **options
        )

    def pause(self):
        os.killpg(self.child.pid, signal.SIGSTOP)

    def resume(self):
        os.killpg(self.child.pid, signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for end in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.child.pid, end)
                os.killpg(self.child.pid, signal.SIGCONT)
                self.child.wait(timeout=5)
                return
            except subprocess.TimeoutExpired:
                continue
            except ProcessLookupError:
                return


class Server(Process):
    """A server on a port of the loopback, ready when a path answers 200."""

    def __init__(self, command, port, ready, within=180, log=None):
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        out = open(log, "w") if log else subprocess.DEVNULL
        super().__init__(command, stdout=out, stderr=subprocess.STDOUT)
        until = time.monotonic() + within
        try:
            while not self._answers(ready):
                if self.child.poll() is not None:
                    raise RuntimeError(f"{command[0]} ended with {self.child.returncode}; see {log}")
                if time.monotonic() > until:
                    raise RuntimeError(f"{command[0]} was not ready after {within} s; see {log}")
                time.sleep(0.2)
        except BaseException:
            self.__exit__()
            raise
        say(f"{os.path.basename(str(command[0]))} serves on {self.url}")

    def _answers(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=2) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False


class Worker(Process):
    """A process that is given a line and answers with a line of JSON, again and again."""

    def __init__(self, command, **options):
        super().__init__(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
        self.told = self._answer(command)
        self.pause()

    def ask(self, line):
        """Runs it for one measurement."""
        self.resume()
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
            return self._answer(line)
        finally:
            self.pause()

    def _answer(self, what):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{what}: the worker ended with {self.child.wait()}")
        return json.loads(line)
