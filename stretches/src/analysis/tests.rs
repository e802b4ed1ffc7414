// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stretches of small programs, and what cannot be bounded.

use super::*;
use crate::foreign::Exclusive;

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;
const LOOK: u32 = 0xd538_c108;
const WFI: u32 = 0xd503_207f;
const BLR: u32 = 0xd63f_0100;
const BR: u32 = 0xd61f_0100;
/// A branch to itself: where EL2 dies.
const FOR_EVER: u32 = 0x1400_0000;

/// `BL`, `B`, `CBZ x0` and `CBNZ x0` by a number of instructions.
fn bl(by: i32) -> u32 {
    0x9400_0000 | (by as u32 & 0x3ff_ffff)
}
fn b(by: i32) -> u32 {
    0x1400_0000 | (by as u32 & 0x3ff_ffff)
}
fn cbz(by: i32) -> u32 {
    0xb400_0000 | (by as u32 & 0x7_ffff) << 5
}
fn cbnz(by: i32) -> u32 {
    0xb500_0000 | (by as u32 & 0x7_ffff) << 5
}

/// The stretches of a program by function of their start, and the problems.
fn analyse(
    functions: &[(&str, &str, &[u32])],
    source: &str,
    foreign: &Foreign,
) -> (Vec<(Start, Option<u64>)>, Vec<String>) {
    let program = Program::for_tests(functions);
    let mut annotations = Annotations::default();
    annotations.add("core/src/f.rs", source).unwrap();
    let mut analysis = Analysis::new(&program, &annotations, foreign);
    let starts = analysis.starts();
    let stretches = starts.into_iter().map(|start| {
        let length = analysis.stretch(start).map(|it| it.length);
        (start, length)
    });
    let stretches = stretches.collect();
    (
        stretches,
        analysis.problems.iter().map(ToString::to_string).collect(),
    )
}

fn lengths(functions: &[(&str, &str, &[u32])]) -> Vec<Option<u64>> {
    let (stretches, problems) = analyse(functions, "", &Foreign::default());
    assert_eq!(problems, Vec::<String>::new());
    stretches.into_iter().map(|it| it.1).collect()
}

fn problems(functions: &[(&str, &str, &[u32])]) -> Vec<String> {
    analyse(functions, "", &Foreign::default()).1
}

#[test]
fn a_stretch_goes_through_calls_and_returns() {
    // f looks, and calls g, which looks after one instruction, and returns after two more; then f sleeps.
    let f = [LOOK, NOP, bl(4), NOP, NOP, WFI];
    let g = [NOP, LOOK, NOP, RET];
    assert_eq!(
        lengths(&[("f", "core/src/f.rs", &f), ("g", "core/src/g.rs", &g)]),
        // From f into g; from the sleep nothing follows; from g back to f.
        [Some(4), None, Some(2 + 3)]
    );
}

#[test]
fn the_longest_of_all_callers_counts() {
    let f = [bl(4), NOP, NOP, WFI];
    let g = [LOOK, RET];
    let h = [bl(-2), NOP, WFI];
    let all = lengths(&[
        ("f", "core/src/f.rs", &f),
        ("g", "core/src/g.rs", &g),
        ("h", "core/src/h.rs", &h),
    ]);
    assert_eq!(all, [None, Some(1 + 3), None]);
}

#[test]
fn a_jump_to_a_function_returns_to_the_caller() {
    // f calls g, which jumps to h, which looks and returns to f.
    let f = [bl(3), NOP, WFI];
    let g = [b(1)];
    let h = [LOOK, NOP, RET];
    let all = lengths(&[
        ("f", "core/src/f.rs", &f),
        ("g", "core/src/g.rs", &g),
        ("h", "core/src/h.rs", &h),
    ]);
    assert_eq!(all, [None, Some(2 + 2)]);
}

#[test]
fn what_leads_to_the_death_of_el2_only_does_not_count() {
    // f looks, and either dies in a function that loops without a bound, or looks again.
    let f = [LOOK, cbz(3), NOP, LOOK, bl(1)];
    let die = [NOP, NOP, NOP, FOR_EVER];
    let all = lengths(&[("f", "core/src/f.rs", &f), ("die", "core/src/f.rs", &die)]);
    assert_eq!(all, [Some(3), None]);
}

#[test]
fn a_loop_that_ends_with_death_needs_no_bound() {
    // Two instructions before a call that does not return; behind the call is other code.
    let f = [LOOK, cbz(5), NOP, cbnz(-1), bl(4), NOP, LOOK, RET];
    let die = [FOR_EVER];
    let all = lengths(&[("f", "core/src/f.rs", &f), ("die", "core/src/f.rs", &die)]);
    assert_eq!(all, [Some(2), None]);
}

#[test]
fn a_loop_of_an_inlined_function_does_not_get_the_bound_of_the_loop_around_it() {
    let problems = |source: &str| {
        // The outer loop is of f, at line 2; the inner one is of g, which is called there, and has no comment.
        let f = [LOOK, NOP, NOP, cbnz(-1), NOP, cbnz(-4), LOOK, RET];
        let mut program = Program::for_tests(&[("f", "core/src/f.rs", &f)]);
        for at in [1, 4, 5] {
            program.inline_for_tests(at, &[("f", 2)]);
        }
        for at in [2, 3] {
            program.inline_for_tests(at, &[("g", 9), ("f", 2)]);
        }
        let mut annotations = Annotations::default();
        annotations.add("core/src/f.rs", source).unwrap();
        let foreign = Foreign::default();
        let mut analysis = Analysis::new(&program, &annotations, &foreign);
        let length = analysis.stretch(analysis.starts()[0]).map(|it| it.length);
        let problems: Vec<_> = analysis.problems.iter().map(ToString::to_string).collect();
        (length, problems)
    };
    let (_, refused) = problems("// At most 3 times: a.\nx;");
    assert_eq!(
        refused,
        [
            "core/src/f.rs:2: a loop in f has no bound; write above it \"// At most N times: what limits it\""
        ]
    );
    // One comment for both: the inner loop goes on three times in all.
    let (length, refused) = problems("// At most 3 times in all: a.\nx;");
    assert_eq!(refused, Vec::<String>::new());
    assert!(
        length.is_some_and(|it| (4 * 5 + 3 * 2 + 1..=4 * 7 + 3 * 2 + 1).contains(&it)),
        "{length:?}"
    );
    // One for each.
    let (length, refused) =
        problems("// At most 3 times: a.\nx;\n\n\n\n\n\n// At most 2 times: b.\ny;");
    assert_eq!((length, refused), (Some(4 * (3 + 3 * 2) + 1), vec![]));
}

#[test]
fn a_bound_in_the_sources_counts() {
    // Three rounds more of two instructions.
    let f = [LOOK, NOP, cbnz(-1), LOOK, RET];
    let source = "\n// At most 3 times: tests.\nx";
    let (stretches, problems) = analyse(&[("f", "core/src/f.rs", &f)], source, &Foreign::default());
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(stretches[0].1, Some(2 + 3 * 2 + 1));
}

#[test]
fn an_atomic_operation_has_the_bound_of_all() {
    // ldaxr w8, [x0]; stlxr w9, w10, [x0]; cbnz
    let f = [LOOK, 0x885f_fc08, 0x8809_fc0a, cbnz(-2), LOOK, RET];
    let foreign = Foreign {
        exclusive: Exclusive {
            times: 7,
            why: "cores".into(),
        },
        ..Foreign::default()
    };
    let (stretches, problems) = analyse(&[("f", "core/src/f.rs", &f)], "", &foreign);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(stretches[0].1, Some(3 * 8 + 1));
}

#[test]
fn a_loop_in_which_each_round_looks_needs_no_bound() {
    let f = [LOOK, NOP, NOP, cbnz(-3), RET];
    assert_eq!(lengths(&[("f", "core/src/f.rs", &f)]), [Some(4)]);
}

#[test]
fn a_loop_without_a_bound_is_refused() {
    let f = [LOOK, NOP, cbnz(-1), LOOK, RET];
    assert_eq!(
        problems(&[("f", "core/src/f.rs", &f)]),
        [
            "core/src/f.rs:3: a loop in f has no bound; write above it \"// At most N times: what limits it\""
        ]
    );
    assert_eq!(
        problems(&[("f", "crates/a/src/f.rs", &f)]),
        [
            "f: the loop at 0x40200004 has no bound, and is not in the project's own sources; name its bound in foreign.toml, under \
          [[function]]"
        ]
    );
}

#[test]
fn a_loop_that_no_stretch_reaches_needs_no_bound() {
    let start = [NOP, cbnz(-1), RET];
    let f = [LOOK, NOP, LOOK, RET];
    assert_eq!(
        lengths(&[
            ("start", "core/src/f.rs", &start),
            ("f", "core/src/f.rs", &f)
        ]),
        [Some(2), None]
    );
}

/// The problem with an indirect branch.
fn indirect(place: &str) -> String {
    format!(
        "{place}: it branches to an address in a register, and a guest can train the core's prediction of indirect branches at EL2 \
         (CVE-2017-5715, CVE-2022-23960); write a `match` instead of a trait object or a function pointer, and compile with \
         -Cjump-tables=no, as scripts/build does"
    )
}

#[test]
fn indirect_branches_after_a_look_are_refused() {
    // All of them on the way are told.
    let f = [LOOK, BLR, BLR, LOOK, RET];
    assert_eq!(
        problems(&[("f", "core/src/f.rs", &f)]),
        [
            indirect("f at 0x40200004 (core/src/f.rs:2)"),
            indirect("f at 0x40200008 (core/src/f.rs:3)")
        ]
    );
    // A called function that ends with a jump.
    let f = [LOOK, bl(2), WFI];
    let g = [NOP, BR];
    assert_eq!(
        problems(&[("f", "core/src/f.rs", &f), ("g", "core/src/g.rs", &g)]),
        [indirect("g at 0x40200010 (core/src/g.rs:2)")]
    );
    // What is called never returns, perhaps.
    assert_eq!(
        problems(&[("f", "core/src/f.rs", &[LOOK, BLR])]),
        [indirect("f at 0x40200004 (core/src/f.rs:2)")]
    );
}

#[test]
fn indirect_branches_that_no_stretch_reaches_are_not_refused() {
    let start = [BLR, BR];
    // f looks, and either says how it dies, or looks again.
    let f = [LOOK, cbz(2), LOOK, bl(2), FOR_EVER];
    let say = [BLR, RET];
    assert_eq!(
        lengths(&[
            ("start", "core/src/f.rs", &start),
            ("f", "core/src/f.rs", &f),
            ("say", "core/src/f.rs", &say)
        ]),
        [Some(2), None]
    );
}

#[test]
fn recursion_is_refused() {
    let f = [LOOK, bl(3), LOOK, RET];
    let g = [cbz(2), bl(-1), RET];
    assert_eq!(
        problems(&[("f", "core/src/f.rs", &f), ("g", "core/src/g.rs", &g)]),
        [
            "g: it calls itself, perhaps through other functions; write a loop with a bound, or name it in foreign.toml under [[outside]]"
        ]
    );
}

#[test]
fn an_entry_for_what_does_not_exist_is_refused() {
    let foreign: Foreign = toml::from_str(
        "exclusive = { times = 1, why = \"\" }\noutside = [{ name = \"gone\", why = \"\" }]",
    )
    .unwrap();
    assert_eq!(
        analyse(&[("f", "core/src/f.rs", &[RET])], "", &foreign).1,
        ["foreign.toml: the program has no function gone; remove the entry, or correct its name"]
    );
}

#[test]
fn an_inlined_function_can_be_outside() {
    // A sleep of a function that is inlined, and one of its own.
    let f = [LOOK, cbz(2), WFI, NOP, WFI];
    let foreign: Foreign = toml::from_str(
        "exclusive = { times = 1, why = \"\" }\noutside = [{ name = \"halt\", inlined = true, why = \"\" }]",
    )
    .unwrap();
    let functions: [(&str, &str, &[u32]); 1] = [("halt", "core/src/f.rs", &f)];
    assert_eq!(analyse(&functions, "", &foreign).0, []);
    assert_eq!(lengths(&functions)[0], Some(3));
}

#[test]
fn a_path_is_told_line_by_line() {
    // f looks, calls g, in which a loop has three rounds more, and looks again.
    let f = [LOOK, NOP, bl(4), NOP, LOOK, RET];
    let g = [NOP, NOP, cbnz(-1), RET];
    let functions: [(&str, &str, &[u32]); 2] =
        [("a::f", "core/src/f.rs", &f), ("a::g", "core/src/g.rs", &g)];
    let program = Program::for_tests(&functions);
    let mut annotations = Annotations::default();
    annotations
        .add("core/src/g.rs", "\n// At most 3 times: tests.\nx")
        .unwrap();
    let foreign = Foreign::default();
    let mut analysis = Analysis::new(&program, &annotations, &foreign);
    let rows = crate::rows::table(&program, &mut analysis);
    assert_eq!(rows.len(), 1, "from the second look nothing follows");
    let row = &rows[0];
    assert_eq!(
        (row.row.from.as_str(), row.row.to.as_str()),
        ("look in f (f.rs), number 1", "look in f (f.rs), number 2")
    );
    assert_eq!(
        row.parts,
        [("g".to_string(), 1 + 4 * 2 + 1), ("f".to_string(), 4)]
    );
    assert_eq!(
        crate::explain::path(&program, &analysis, row.last, row.row.instructions),
        "           2  f (core/src/f.rs:2)
          10  g:
           1    g (core/src/g.rs:1)
           2    g (core/src/g.rs:2)
           4    2 times more:
           4      g (core/src/g.rs:2)
           2    g (core/src/g.rs:2)
           1    g (core/src/g.rs:4)
           2  f (core/src/f.rs:4)
"
    );
}
