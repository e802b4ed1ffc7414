# SPDX-License-Identifier: GPL-2.0-or-later
"""The clock on small guests without an operating system. See guests/*.S for what each one does."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import unittest.mock

from testbed import BUSY_LOOPS, Run, busy_loops, clock, guest, run

NS_PER_INSTRUCTION = 4  # at --ipus 250
QUANTUM = 1000


def pairs(marks):
    """(number, x0) of each mark."""
    return [(mark["mark"], int(mark.get("x0", "0"), 16)) for mark in marks]


class Counting(unittest.TestCase):
    def test_known_code_is_counted_exactly(self):
        result = run("counts")
        at = [mark["instructions"] for mark in result["marks"]]
        # Each difference includes the mark at its start.
        self.assertEqual(at[0], 2)
        self.assertEqual(at[1] - at[0], 1 + 12345 * 3)
        self.assertEqual(at[2] - at[1], 1 + 4 + 100 * 6)
        self.assertEqual(at[3] - at[2], 1 + 2 + 1000 * 4)

    def test_time_is_instructions_times_speed(self):
        for speed, ns in ((250, 4), (1000, 1), (100, 10)):
            marks = run("counts", ipus=speed)["marks"]
            passed = marks[1]["instructions"] - marks[0]["instructions"]
            self.assertEqual(marks[1]["ns"] - marks[0]["ns"], passed * ns)

    def test_rounding_does_not_add_up(self):
        # Each mark is rounded by up to a third of a nanosecond; the rounds add no error.
        marks = run("counts", ipus=300)["marks"]
        passed = marks[3]["instructions"] - marks[0]["instructions"]
        self.assertAlmostEqual(marks[3]["ns"] - marks[0]["ns"], passed * 10 / 3, delta=2)

    def test_the_quantum_does_not_change_a_count(self):
        for quantum in (50, 777, 100000):
            marks = run("counts", q=quantum)["marks"]
            self.assertEqual(marks[3]["instructions"] - marks[0]["instructions"], 41644)

    def test_levels_add_up(self):
        core = run("counts")["cores"][0]
        self.assertEqual(core["el1"], core["instructions"])
        self.assertEqual(core["el0"] + core["el2"] + core["el3"], 0)

    def test_profile_names_functions(self):
        result = run("spin", cores=2, symbols=["el1:" + str(guest("spin").with_suffix(".nm"))])
        functions = {entry["function"]: entry for entry in result["profile"]}
        self.assertEqual(functions["work_with_lock"]["instructions"], 2 + 100000 + 1)

    def test_profile_between_marks(self):
        symbols = ["el1:" + str(guest("spin").with_suffix(".nm"))]
        whole = run("spin", cores=2, symbols=symbols)
        inside = run("spin", cores=2, symbols=symbols, profile_from=1, profile_to=2)
        before = run("spin", cores=2, symbols=symbols, profile_to=1)
        self.assertEqual(whole["hash"], inside["hash"])
        count = lambda result, name: sum(
            entry["instructions"] for entry in result["profile"] if entry["function"] == name
        )
        self.assertEqual(count(inside, "work_with_lock"), count(whole, "work_with_lock"))
        self.assertLess(count(inside, "_start"), count(whole, "_start"))
        times = [mark["ns"] for mark in whole["marks"] if mark["mark"] in (1, 2)]
        self.assertEqual([inside["profiled"][key] for key in ("from_ns", "to_ns")], times)
        self.assertEqual(inside["profiled"]["el1"], sum(it["instructions"] for it in inside["profile"]))
        self.assertEqual(count(before, "work_with_lock"), 0)
        # Marks that are never passed: the profile covers the whole run.
        never = run("spin", cores=2, symbols=symbols, profile_from=99, profile_to=99)
        self.assertEqual(never["profile"], whole["profile"])
        self.assertEqual(never["spin"], whole["spin"])
        # The profile restarts at the mark where the wait ends, so little is counted.
        behind = run("spin", cores=2, symbols=symbols, profile_from=2)
        self.assertLess(sum(entry["instructions"] for entry in behind["profile"]), 2000)

    def profile_of_repeats(self, **options):
        result = run("repeats", symbols=["el1:" + str(guest("repeats").with_suffix(".nm"))], **options)
        functions = {it["function"]: it["instructions"] for it in result["profile"]}
        return result, functions

    def test_the_profile_covers_only_the_last_repeat(self):
        result, functions = self.profile_of_repeats(profile_from=1, profile_to=2)
        self.assertEqual((functions["measured"], functions.get("between")), (2 + 200 + 1, None))
        times = [mark["ns"] for mark in result["marks"]][-2:]
        self.assertEqual([result["profiled"][key] for key in ("from_ns", "to_ns")], times)

    def test_a_mark_before_the_profile_begins_does_not_end_it(self):
        result, functions = self.profile_of_repeats(profile_from=2, profile_to=3)
        self.assertEqual(result["profiled"]["to_ns"], result["virtual_ns"])
        self.assertEqual((functions["between"], functions.get("cut")), (2 + 200 + 1, None))

    def test_instructions_taken_back_from_before_the_profile_do_not_reduce_it(self):
        result, functions = self.profile_of_repeats(profile_from=3)
        self.assertLess(max(functions.values()), 1000, functions)


class Marks(unittest.TestCase):
    def test_number_value_and_place(self):
        marks = run("marks")["marks"]
        self.assertEqual(pairs(marks), [(7, 0), (0xFFFF, 2**64 - 1), (8, 1)])
        self.assertEqual([mark["instructions"] for mark in marks], [2, 6, 8])
        self.assertNotIn("x0", marks[0])
        self.assertEqual({(mark["core"], mark["el"]) for mark in marks}, {(0, 1)})


class Parallel(unittest.TestCase):
    def test_cores_run_at_the_same_time(self):
        result = run("parallel", cores=4)
        for core in range(4):
            start, end = (
                mark["ns"] for mark in result["marks"] if mark["core"] == core and mark["mark"] < 3
            )
            self.assertEqual(end - start, 1000001 * NS_PER_INSTRUCTION)
        all_done = next(mark["ns"] for mark in result["marks"] if mark["mark"] == 3)
        self.assertLess(all_done, 1.02 * 1000001 * NS_PER_INSTRUCTION)

    def test_sixteen_cores(self):
        # Twelve of them are never started.
        result = run("parallel", cores=16)
        self.assertEqual(len(result["cores"]), 16)
        self.assertEqual(sum(core["instructions"] > 1000000 for core in result["cores"]), 4)

    def test_time_in_a_lock_function(self):
        result = run("spin", cores=2, symbols=["el1:" + str(guest("spin").with_suffix(".nm"))])
        (spin,) = result["spin"]
        held = result["marks"][1]["ns"] - result["marks"][0]["ns"]
        self.assertEqual(spin["function"], "queued_spin_lock_slowpath")
        self.assertEqual(spin["entries"], 1)
        self.assertAlmostEqual(spin["longest_ns"], held, delta=3 * QUANTUM * NS_PER_INSTRUCTION)
        # It waited with WFE, so it executed few instructions.
        self.assertLess(spin["instructions"], 2000)
        self.assertGreater(result["cores"][0]["polled_ns"], 0.9 * held)


class Timers(unittest.TestCase):
    TICK_NS = 16

    def late(self, mark):
        return mark["ns"] - int(mark["x0"], 16) * self.TICK_NS

    def test_sleep_ends_when_the_timer_is_due(self):
        result = run("timer")
        sleeps = [mark for mark in result["marks"] if mark["mark"] in (1, 3)]
        self.assertEqual(len(sleeps), 6)
        for mark in sleeps:
            # Behind WFI: a move, then the mark.
            self.assertTrue(0 <= self.late(mark) <= 5 * NS_PER_INSTRUCTION, mark)

    def test_the_interrupt_arrives_when_the_timer_is_due(self):
        (mark,) = (mark for mark in run("timer")["marks"] if mark["mark"] == 2)
        self.assertTrue(0 <= self.late(mark) <= 10 * NS_PER_INSTRUCTION, mark)

    def test_interrupts_on_busy_cores_arrive_when_due(self):
        # The handler executes one instruction before the mark; the interrupted block is executed to its end.
        bound = 10 * NS_PER_INSTRUCTION
        for options in ({}, {"q": 333}, {"seed": 3}):
            marks = run("timers", cores=4, **options)["marks"]
            for core in (0, 3):
                late = [self.late(mark) for mark in marks if (mark["mark"], mark["core"]) == (1, core)]
                self.assertEqual(len(late), 100)
                self.assertGreaterEqual(min(late[::2]), 0)
                self.assertLessEqual(max(late), bound)
                if core == 0:
                    self.assertGreaterEqual(min(late), 0)
                else:
                    # Set for a time in the same round that another core has already reached.
                    self.assertGreaterEqual(min(late), -1.2 * QUANTUM * NS_PER_INSTRUCTION)

    def test_the_first_core_reads_the_exact_time(self):
        marks = run("timers", cores=4)["marks"]
        seen = [int(mark["x0"], 16) for mark in marks if (mark["mark"], mark["core"]) == (2, 0)]
        self.assertEqual(len(seen), 100)
        self.assertLessEqual(max(seen), 10 * NS_PER_INSTRUCTION // self.TICK_NS)

    def test_sleep_costs_nothing(self):
        result = run("timer")
        self.assertGreater(result["virtual_ns"], 1_060_000_000)
        # Rounds pass in the busy loop of 10 ms only.
        self.assertLess(result["rounds"], 1.1 * 10_000_000 / NS_PER_INSTRUCTION / QUANTUM)
        self.assertGreater(result["cores"][0]["asleep_ns"], 1_040_000_000)

    def test_end_of_the_run_at_a_given_time(self):
        result = run("timer", end_us=30_000)
        self.assertEqual(result["virtual_ns"] // 1000, 30_000)
        self.assertEqual(len(result["marks"]), 2)

    def test_end_of_the_run_at_a_mark(self):
        for options in ({}, {"seed": 3}, {"q": 20000}):
            whole = run("timer", **options)["marks"]
            first, again = (run("timer", end_mark=2, **options) for _ in range(2))
            self.assertEqual(first["hash"], again["hash"])
            self.assertEqual(first["outside_events"], 0)
            # The run ends at the first mark 2, before the guest sleeps for a second.
            numbers = [mark["mark"] for mark in whole]
            self.assertEqual(first["marks"], whole[: numbers.index(2) + 1])
            self.assertLess(first["virtual_ns"], first["marks"][-1]["ns"] + 20000 * NS_PER_INSTRUCTION)

    def test_a_mark_that_is_not_passed_ends_nothing(self):
        self.assertEqual(run("timer", end_mark=9)["hash"], run("timer")["hash"])


class Wakes(unittest.TestCase):
    def test_a_sleeping_core_continues_when_it_is_woken(self):
        for options in ({}, {"q": 333}, {"q": 20000}, {"seed": 7}):
            marks = run("wake", cores=4, **options)["marks"]
            sent = [mark["ns"] for mark in marks if mark["mark"] == 1]
            woken = [mark["ns"] for mark in marks if mark["mark"] == 2]
            self.assertGreater(len(woken), 190)
            # Between the marks: mark 1 and the write to the register.
            delays = {after - before for before, after in zip(sent, woken)}
            self.assertEqual(delays, {2 * NS_PER_INSTRUCTION})


class Exits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.result = run("exits", machine="virt,gic-version=3,virtualization=on")
        cls.causes = {each["cause"]: each for each in cls.result["visits"]}

    def test_calls_by_function(self):
        one, two = self.causes["HVC 0x00000001"], self.causes["HVC 0x00000002"]
        self.assertEqual((one["visits"], one["instructions"], one["most"]), (10, 80, 8))
        self.assertEqual((two["visits"], two["instructions"], two["most"]), (3, 3 * 208, 208))
        self.assertEqual(one["by_power_of_two"], [0, 0, 0, 10])

    def test_steps_are_found_in_exits_not_among_marks(self):
        def steps(cause):
            each = self.causes[cause]
            parts = [(it["step"], it["instructions"], it["most"]) for it in each["steps"]]
            return parts, tuple(each["rest"].values())

        self.assertEqual(
            steps("HVC 0x00000001"), ([(0, 10 * 3, 3), (15, 10 * 2, 2)], (10 * 3, 3))
        )
        self.assertEqual(steps("HVC 0x00000002"), ([(1, 3 * 206, 206)], (3 * 2, 2)))
        self.assertNotIn("steps", self.causes["HVC 0x00000003"])
        self.assertEqual([mark["mark"] for mark in self.result["marks"]], [1])

    def test_a_sleep_divides_an_exit(self):
        three, wake = self.causes["HVC 0x00000003"], self.causes["wake from waiting at EL2"]
        self.assertEqual((three["visits"], three["most"]), (1, 7 + 11))
        self.assertEqual((wake["visits"], wake["most"]), (1, 4))

    def test_a_check_for_interrupts_divides_a_stretch(self):
        two, four = self.causes["HVC 0x00000002"], self.causes["HVC 0x00000004"]
        self.assertEqual((two["most"], two["longest_deaf"]), (208, 208))
        self.assertEqual((four["most"], four["longest_deaf"]), (153, 110))
        # Both begin at the vector (lower level, synchronous). One ends at the return, the other at the check before it.
        vector, entry = 0x800, 0x400
        self.assertEqual({int(it["deaf_from"], 16) % vector for it in (two, four)}, {entry})
        self.assertEqual(two["deaf_from"], four["deaf_from"])
        self.assertNotEqual(two["deaf_to"], four["deaf_to"])

    def test_start(self):
        self.assertEqual(self.causes["start of a core"]["visits"], 1)

    def test_instructions_at_each_level(self):
        core = self.result["cores"][0]
        self.assertEqual(core["el0"], 5)
        self.assertEqual(core["el1"], 2 + 10 * 4 + 1 + 3 * 4 + 2 + 2 + 7 + 3)
        self.assertEqual(core["el2"], sum(each["instructions"] for each in self.result["visits"]))

    def test_ends(self):
        ends = {cause: each["end"] for cause, each in self.causes.items()}
        self.assertEqual(ends.pop("HVC 0x00000003"), "sleeps")
        self.assertEqual(ends.pop("HVC 0x84000008"), "unfinished")
        self.assertEqual(set(ends.values()), {"stays"})

    def test_interrupts_with_and_without_a_switch(self):
        result = run("switches", machine="virt,gic-version=3,virtualization=on")
        irqs = {each["end"]: each for each in result["visits"] if each["cause"] == "IRQ"}
        self.assertEqual({irq["intid"] for irq in irqs.values()}, {26})
        figures = {end: (irq["visits"], irq["instructions"]) for end, irq in irqs.items()}
        self.assertEqual(figures["stays"], (4, 4 * 10))
        self.assertEqual(figures["switches"], (5, 5 * 12))
        self.assertEqual(figures["unfinished"][0], 1)

    def test_trails_have_every_instruction_of_the_exits_of_their_kind(self):
        result = run("exits", machine="virt,gic-version=3,virtualization=on", trails="HVC 0x00000002:stays")
        self.assertEqual(result["hash"], self.result["hash"])
        causes = {each["cause"]: each for each in result["visits"]}
        two, trails = causes["HVC 0x00000002"], result["trails"]
        executed = sum(block["instructions"] * block["runs"] for block in trails["blocks"])
        self.assertEqual((trails["visits"], executed), (two["visits"], two["instructions"]))
        deaf = sum(block["instructions"] for block in two["deaf_blocks"])
        self.assertEqual(deaf, two["longest_deaf"])
        self.assertNotIn("trails", self.result)

    def test_causes_can_be_left_out(self):
        result = run("exits", machine="virt,gic-version=3,virtualization=on", causes="off")
        causes = {each["cause"]: each["visits"] for each in result["visits"]}
        self.assertEqual(causes, {"start of a core": 1, "any": 16, "wake from waiting at EL2": 1})


class Repeatable(unittest.TestCase):
    def assert_same(self, *results):
        for result in results:
            self.assertEqual(result["outside_events"], 0)
            del result["host"]
            self.assertEqual(result, results[0])

    def test_runs_are_identical(self):
        self.assert_same(*(run("parallel", cores=4) for _ in range(3)))

    def test_identical_beside_busy_loops(self):
        alone = run("parallel", cores=4)
        with busy_loops(BUSY_LOOPS):
            self.assert_same(alone, run("parallel", cores=4), run("parallel", cores=4))

    def test_seeds_differ(self):
        results = [run("parallel", cores=4, seed=seed) for seed in range(4)]
        self.assertEqual(len({result["hash"] for result in results}), 4)
        for result in results:
            self.assertAlmostEqual(result["virtual_ns"] / results[0]["virtual_ns"], 1, delta=0.01)

    def test_a_seed_is_repeatable(self):
        self.assert_same(run("parallel", cores=4, seed=5), run("parallel", cores=4, seed=5))

    def test_speed_and_quantum_change_the_hash(self):
        hashes = {run("parallel", cores=4, **o)["hash"] for o in ({}, {"q": 500}, {"ipus": 251})}
        self.assertEqual(len(hashes), 3)

    def test_events_from_outside_are_counted(self):
        process = Run("echo", cores=1).start(stdin=subprocess.PIPE)
        # The guest waits for the character, so it cannot arrive too late.
        process.wait_until_running()
        process.process.stdin.write(b"x")
        process.process.stdin.flush()
        result = process.wait()
        self.assertEqual(pairs(result["marks"]), [(1, ord("x"))])
        self.assertGreater(result["outside_events"], 0)


class Ends(unittest.TestCase):
    def test_after_sigterm_the_results_are_complete(self):
        for name, marks in (("echo", []), ("idle", [(1, 0)])):
            process = Run(name).start(stdin=subprocess.PIPE)
            process.wait_until_running()
            process.process.terminate()
            result = process.wait()
            self.assertEqual(pairs(result["marks"]), marks)
            self.assertEqual(len(result["cores"]), 1)

    def test_a_guest_that_executes_no_instruction_is_ended_by_a_signal(self):
        for cores, number in ((1, signal.SIGTERM), (1, signal.SIGINT), (4, signal.SIGTERM)):
            process = Run("stuck", cores=cores).start()
            process.wait_until_running()
            # The guest is in its loop by then: a signal in the round before that is not what this is about.
            time.sleep(5)
            process.process.send_signal(number)
            result = process.wait()
            self.assertEqual(pairs(result["marks"]), [(1, 0)])
            self.assertEqual(len(result["cores"]), cores)

    def test_concurrent_runs_do_not_change_each_other(self):
        alone = run("timers", cores=4)
        processes = [Run("timers", cores=4).start() for _ in range(3)]
        for process in processes:
            self.assertEqual(process.wait()["hash"], alone["hash"])


class Errors(unittest.TestCase):
    def assert_error(self, text, **options):
        with self.assertRaises(subprocess.CalledProcessError) as caught:
            run("marks", **options)
        self.assertIn(text, caught.exception.stderr)

    def test_wrong_options(self):
        # With the names that the user wrote.
        self.assert_error(" --q 7: expected a number from 50", q=7)
        self.assert_error(" --ipus fast: expected a number", ipus="fast")
        self.assert_error(" --end-us 1s: expected a number", end_us="1s")
        self.assert_error(" --symbols kernel.map: expected elN:FILE", symbols=["kernel.map"])
        missing = "el1:/nowhere.map:auto"
        self.assert_error(f" --symbols {missing}: No such file", symbols=[missing])
        self.assert_error(" --symbols el1:/dev/null:x: the offset", symbols=["el1:/dev/null:x"])
        self.assert_error(" --symbols el1:/dev/null: no functions", symbols=["el1:/dev/null"])
        self.assert_error(" --trace /nowhere/trace: No such file", trace="/nowhere/trace")
        self.assert_error(" --json /nowhere/a,b: No such file", json="/nowhere/a,b")
        self.assert_error(" --causes perhaps: expected on or off", causes="perhaps")
        self.assert_error("run: unknown option --speed", speed=1)

    def test_a_folder_of_symbols_may_have_a_colon_and_a_comma_in_its_name(self):
        with tempfile.TemporaryDirectory(prefix="a:b,c d") as folder:
            names = shutil.copy(guest("spin").with_suffix(".nm"), folder)
            for offset in ("", ":0"):
                result = run("spin", cores=2, symbols=[f"el1:{names}{offset}"])
                self.assertIn("work_with_lock", [entry["function"] for entry in result["profile"]])

    def test_a_clock_that_cannot_be_preloaded_is_named(self):
        with tempfile.TemporaryDirectory(prefix="a b") as folder:
            copy = shutil.copy(clock(), folder)
            with unittest.mock.patch.dict(os.environ, SPUMONE_CLOCK=copy):
                self.assert_error(f"run: {copy}: LD_PRELOAD takes no path")

    def assert_qemu_refuses(self, text, accelerator, environment, settings=""):
        command = ["qemu-system-aarch64", "-M", "virt", "-smp", "2", "-display", "none"]
        command += ["-accel", accelerator, "-plugin", f"{clock()}{settings}"]
        result = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=60
        )
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(text, result.stderr)

    def test_one_thread_for_each_core_is_refused(self):
        preload = {"LD_PRELOAD": str(clock())}
        self.assert_qemu_refuses("use -accel tcg,thread=single", "tcg,thread=multi", preload)

    def test_the_plugin_alone_names_its_options(self):
        preload = {"LD_PRELOAD": str(clock())}
        known = "unknown option speed; known are q, ipus, seed, disk-us, end-us, end-mark, "
        self.assert_qemu_refuses(known, "tcg,thread=single", preload, ",speed=1")

    def test_a_plugin_that_is_not_preloaded_is_refused(self):
        self.assert_qemu_refuses("must be preloaded", "tcg,thread=single", {})

    def test_other_programs_get_the_hosts_time(self):
        # Preloaded into a program that is not QEMU, it does nothing.
        command = ["date", "+%s"]
        environment = os.environ | {"LD_PRELOAD": str(clock())}
        shown = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
        self.assertGreater(int(shown), 1_600_000_000)


if __name__ == "__main__":
    unittest.main()
