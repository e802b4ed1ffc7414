# SPDX-License-Identifier: GPL-2.0-or-later
"""The clock under Linux: hackbench on four cores, a disk, a network, and the hypervisor's demo.

Needs the Linux guest (`make guests`), or SPUMONE_LINUX=FOLDER that has one; for the last one also
SPUMONE_IMAGE=FILE, an image that `spm build` made, of guests that end by themselves, and
SPUMONE_SYMBOLS=FILE, the hypervisor's as `nm -C` writes them. Skipped without.
"""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from testbed import BUILD, BUSY_LOOPS, TESTBED, busy_loops, run

LINUX = pathlib.Path(os.environ.get("SPUMONE_LINUX", BUILD / "guests" / "linux"))
# Without EL2: a kernel that starts at EL2 would stay there.
BARE_MACHINE = "virt,gic-version=3"
MACHINE = "virt,gic-version=3,virtualization=on"
# Longer than any run: a kernel that panics would wait for ever.
END_US = 60_000_000
HYPERVISOR_IMAGE = os.environ.get("SPUMONE_IMAGE")
HYPERVISOR_SYMBOLS = os.environ.get("SPUMONE_SYMBOLS")


def linux(scenario, arguments, **options):
    append = f"console=ttyAMA0 quiet cryptomgr.notests spumone.run={scenario} spumone.args={arguments}"
    kernel = ["-kernel", str(LINUX / "Image"), "-initrd", str(LINUX / "initrd.cpio")]
    kernel += ["-append", append, "-m", "512M"]
    return run(kernel, machine=BARE_MACHINE, end_us=END_US, **options)


def twice(start):
    """The same run alone, and beside busy loops."""
    first = start()
    with busy_loops(BUSY_LOOPS):
        return first, start()


class Linux(unittest.TestCase):
    maxDiff = None

    def assert_same_and_good(self, results):
        for result in results:
            self.assertIn(" ok=1 ", result["output"])
            self.assertEqual(result["outside_events"], 0)
            del result["host"]
        self.assertEqual(results[0]["hash"], results[1]["hash"])
        self.assertEqual(results[0], results[1])


@unittest.skipUnless((LINUX / "Image").exists(), "no Linux guest in build/guests/linux")
class Bare(Linux):
    def test_hackbench_is_repeatable(self):
        with tempfile.TemporaryDirectory() as directory:
            names = pathlib.Path(directory) / "linux.map"
            names.write_bytes(subprocess.check_output([TESTBED / "image-symbols", LINUX / "Image"]))
            # The address that the kernel runs at is random.
            results = twice(
                lambda: linux("hackbench", "-g,1,-l,20", cores=4, symbols=[f"el1:{names}:auto"])
            )
        self.assert_same_and_good(results)
        functions = {entry["function"] for entry in results[0]["profile"]}
        self.assertIn("clear_page", functions)
        self.assertIn("unix_stream_read_generic", functions)
        # All four cores took part.
        for core in results[0]["cores"]:
            self.assertGreater(core["el0"], 100_000)

    def test_disk_is_repeatable(self):
        disks = []

        def start():
            with tempfile.NamedTemporaryFile() as disk:
                disk.truncate(16 << 20)
                drive = f"file={disk.name},format=raw,if=none,id=disk"
                device = "virtio-blk-pci,drive=disk"
                result = linux("disk", "kib=128", cores=2, qemu=["-drive", drive, "-device", device])
                disks.append(pathlib.Path(disk.name).read_bytes())
                return result

        results = twice(start)
        self.assert_same_and_good(results)
        self.assertEqual(disks[0], disks[1])
        self.assertGreater(results[0]["disk_calls"], 50)

    def test_network_within_qemu_is_repeatable(self):
        # DHCP, ping and TFTP with the gateway, which QEMU itself emulates, behind a hub with a third port.
        with tempfile.TemporaryDirectory() as directory:
            (pathlib.Path(directory) / "file").write_bytes(bytes(range(256)) * 100)
            checksum = subprocess.check_output(["sha256sum", f"{directory}/file"], text=True).split()[0]
            net = ["-netdev", f"user,id=net,tftp={directory}", "-netdev", "hubport,id=p0,hubid=0,netdev=net"]
            for port in ("p1", "p2"):
                net += ["-netdev", f"hubport,id={port},hubid=0"]
                net += ["-device", f"virtio-net-pci,netdev={port},romfile="]
            results = twice(
                lambda: linux("net", f"file=file,sha256={checksum}", cores=2, qemu=net)
            )
        self.assert_same_and_good(results)
        self.assertRegex(results[0]["output"], "pings=5 fetched=25600")


@unittest.skipUnless(HYPERVISOR_IMAGE, "SPUMONE_IMAGE is not set")
class Hypervisor(Linux):
    def test_demo_is_repeatable(self):
        kernel = ["-kernel", HYPERVISOR_IMAGE, "-m", "2G"]
        symbols = [f"el2:{HYPERVISOR_SYMBOLS}"] if HYPERVISOR_SYMBOLS else []
        options = {"machine": MACHINE, "cores": 4, "ipus": 500, "end_us": END_US, "symbols": symbols}
        results = twice(lambda: run(kernel, **options))
        self.assert_same_and_good(results)
        causes = {each["cause"] for each in results[0]["visits"]}
        self.assertIn("IRQ", causes)
        self.assertTrue(any(re.match("HVC", cause) for cause in causes))
        self.assertIn("switches", {each["end"] for each in results[0]["visits"]})
        if HYPERVISOR_SYMBOLS:
            functions = [entry["function"] for entry in results[0]["profile"] if entry["el"] == 2]
            self.assertTrue(any("spumone_hypervisor::instance" in function for function in functions))


if __name__ == "__main__":
    unittest.main()
