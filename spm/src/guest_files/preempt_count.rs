// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the place where a Linux kernel counts what holds off preemption: `current->thread_info.preempt_count`.

use super::btf::{Btf, Fault};

/// Functions that only a kernel with CONFIG_PREEMPTION has. It always counts. (`preempt_schedule_irq` is in all kernels.)
const ONLY_WHERE_IT_COUNTS: [&str; 2] = ["preempt_schedule", "preempt_schedule_notrace"];

/// The kernel's name of the field.
const FIELD: &str = "preempt_count";

/// Why there is no usable count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoCount {
    /// What is wrong with the kernel; the text follows its name.
    pub what: String,
    /// What to do.
    pub help: &'static str,
}

/// Bytes from a `task_struct` to its `preempt_count`, whose low 32 bits are 0 while the kernel may be
/// preempted.
pub fn offset(image: &[u8]) -> Result<u32, NoCount> {
    let no = |what: String, help| Err(NoCount { what, help });
    let btf = match Btf::find(image) {
        Ok(btf) => btf,
        Err(Fault::Missing) => {
            let help =
                "use a kernel with CONFIG_DEBUG_INFO_BTF, or write delay-while = \"in-kernel\"";
            return no("has no type information (BTF)".into(), help);
        }
        Err(Fault::Damaged(how)) => {
            let help = "fetch or build it again, or write delay-while = \"in-kernel\"";
            return no(
                format!("has type information (BTF) that cannot be read: {how}"),
                help,
            );
        }
    };
    if !ONLY_WHERE_IT_COUNTS
        .iter()
        .any(|name| btf.has_function(name))
    {
        let help = "use a kernel with CONFIG_PREEMPT, CONFIG_PREEMPT_DYNAMIC or CONFIG_PREEMPT_RT, or write \
                    delay-while = \"in-kernel\"";
        return no("does not count: it is never preempted".into(), help);
    }
    match bits(&btf).and_then(|bits| u32::try_from(bits / 8).ok()) {
        Some(offset) => Ok(offset),
        None => {
            let help = "write delay-while = \"in-kernel\"";
            no(
                format!("has no task_struct with a `thread_info.{FIELD}`"),
                help,
            )
        }
    }
}

fn bits(btf: &Btf<'_>) -> Option<u64> {
    /// Bits that EL2 reads.
    const WORD: u64 = 32;
    let info = btf.field(btf.structure("task_struct")?, "thread_info")?;
    let count = btf.field(info.of, FIELD)?;
    // 4 bytes in older kernels, 8 today: the low half is the count.
    btf.integer_size(count.of)
        .filter(|size| [4, 8].contains(size))?;
    let bits = info.bits + count.bits;
    (bits % WORD == 0).then_some(bits)
}

#[cfg(test)]
mod tests {
    use super::super::btf::blob::{FUNC, INT, STRUCT, Types, kernel};
    use super::*;

    fn refused(types: &Types) -> String {
        offset(&types.bytes())
            .err()
            .map_or_else(String::new, |no| no.what)
    }

    #[test]
    fn the_offset_is_relative_to_the_task() {
        assert_eq!(offset(&kernel(true).bytes()), Ok(16));
    }

    #[test]
    fn a_kernel_that_is_not_preempted_does_not_count() {
        let said = refused(&kernel(false));
        assert_eq!(said, "does not count: it is never preempted");
    }

    /// A kernel that counts, with this `task_struct` and `thread_info`.
    fn with(task: &[(&str, u32, u32)], info: &[(&str, u32, u32)]) -> Types {
        let mut types = Types::new();
        types.add(INT, "int", 4, &[32]);
        types.add(INT, "short", 2, &[16]);
        types.structure(STRUCT, "thread_info", info);
        types.structure(STRUCT, "task_struct", task);
        types.add(FUNC, "preempt_schedule_notrace", 0, &[]);
        types
    }

    #[test]
    fn a_task_without_such_a_count_is_refused() {
        let good = with(&[("thread_info", 3, 32)], &[("preempt_count", 1, 64)]);
        assert_eq!(offset(&good.bytes()), Ok(12));
        let missing = "has no task_struct with a `thread_info.preempt_count`";
        for types in [
            with(&[("stack", 3, 0)], &[("preempt_count", 1, 64)]),
            with(&[("thread_info", 3, 0)], &[("flags", 1, 64)]),
            // Not an integer of at least 32 bits, and not at a multiple of 32 bits.
            with(&[("thread_info", 3, 0)], &[("preempt_count", 2, 64)]),
            with(&[("thread_info", 3, 0)], &[("preempt_count", 1, 8)]),
            with(&[("thread_info", 1, 0)], &[("preempt_count", 1, 64)]),
        ] {
            assert_eq!(refused(&types), missing);
        }
    }

    #[test]
    fn an_image_without_types_is_refused() {
        let said = offset(&[0; 4096]).err().map(|no| no.what);
        assert_eq!(said.as_deref(), Some("has no type information (BTF)"));
    }
}
