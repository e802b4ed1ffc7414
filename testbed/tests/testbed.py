# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs guests on the clock, for the tests."""
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile

TESTBED = pathlib.Path(__file__).resolve().parent.parent
BUILD = TESTBED.parent / "build"
# As many as the smallest machine that tests run on has cores.
BUSY_LOOPS = 2
# Only ends a run that hangs; no test depends on host time.
LIMIT_S = 300


def guest(name):
    """The test guest of this name; `make -C testbed guests` builds it."""
    return BUILD / "testbed" / "guests" / f"{name}.elf"


class Run:
    """One run of QEMU on the clock. Options of `run` are keyword arguments, `_` for `-`."""

    def __init__(self, name, cores=1, machine="virt,gic-version=3", qemu=(), symbols=(), **options):
        options = {"q": 1000, "ipus": 250} | options
        self.directory = tempfile.TemporaryDirectory()
        self.json = pathlib.Path(self.directory.name) / "result.json"
        kernel = ["-kernel", str(guest(name))] if isinstance(name, str) else name
        self.command = [str(TESTBED / "run"), "--json", str(self.json)]
        for option, value in options.items():
            self.command += ["--" + option.replace("_", "-"), str(value)]
        for symbol in symbols:
            self.command += ["--symbols", symbol]
        self.command += ["--", "-M", machine, "-cpu", "cortex-a76", "-smp", str(cores)]
        self.command += ["-display", "none", "-nodefaults", "-serial", "stdio", "-no-reboot"]
        self.command += [*kernel, *qemu]

    def start(self, stdin=subprocess.DEVNULL):
        self.process = subprocess.Popen(
            self.command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        return self

    def wait_until_running(self):
        """Returns when the guest has written a character to its serial line."""
        self.process.stdout.read(1)

    def wait(self):
        """The results; what the guest printed is under "output"."""
        try:
            output, errors = self.process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if self.process.returncode:
            self.directory.cleanup()
            raise subprocess.CalledProcessError(
                self.process.returncode, self.command, output.decode(), errors.decode()
            )
        result = json.loads(self.json.read_text())
        result["output"] = output.decode(errors="replace")
        self.directory.cleanup()
        return result


def clock():
    """The plugin."""
    return BUILD / "testbed" / "spumone-clock.so"


def run(name, **options):
    return Run(name, **options).start().wait()


@contextlib.contextmanager
def busy_loops(number):
    """Runs that many processes which only use the host's processors."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
