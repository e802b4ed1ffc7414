// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which leaves of a guest's image are compared with their hashes while it runs, and which pages it cannot write.
//!
//! Without a list in the description these are the segments of an ELF file that its program does not write. A page that such a segment
//! shares with other bytes stays writable, and only the segment's bytes in it are compared.

use super::{Load, Source};
use crate::description::{Guest, Range};
use crate::image::{ElfSegment, Image};
use crate::packed::{LeafRun, MAX_RANGES, MemoryRange, PageRange};
use crate::problem::{Problem, Span, Spanned};
use crate::types::GuestAddr;
use crate::units::{self, PAGE, align_down, align_up};

/// What is protected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protected {
    /// What is compared: parts of [`GuestPlan::loads`](super::GuestPlan::loads), by their index.
    pub leaves: Vec<LeafRun>,
    /// What the guest cannot write, by rising address.
    pub read_only: Vec<PageRange>,
    /// The local memory from which it runs, if it does.
    pub local: Option<MemoryRange>,
}

/// What of a guest's memory is protected; `Some(None)`: nothing. `None` where that is refused.
pub(super) fn of(
    guest: &Guest,
    image: &Image,
    loads: &[Load],
    local: Option<MemoryRange>,
    problems: &mut Vec<Problem>,
) -> Option<Option<Protected>> {
    let Some(protect) = &guest.protect else {
        return Some(None);
    };
    let protected = match (&protect.ranges, image) {
        _ if local.is_some() => Ok(in_local_memory(image, local)),
        (Some(ranges), _) => listed(guest, &ranges.value, loads),
        (None, Image::Elf { segments, .. }) => by_segments(guest, protect.span, segments, loads),
        // Refused by the checks of options.
        (None, Image::Flat { .. }) => return None,
    };
    let protected = protected.and_then(|protected| match fits(&protected) {
        true => Ok(Some(protected)),
        false => {
            let what = format!("it has more than {MAX_RANGES} separate pieces to protect");
            let help = "name fewer ranges, or link its code in fewer segments";
            Err(refused(guest, protect.span, &what, "too many", help))
        }
    });
    protected.map_err(|problem| problems.push(*problem)).ok()
}

const fn fits(protected: &Protected) -> bool {
    protected.leaves.len() <= MAX_RANGES && protected.read_only.len() <= MAX_RANGES
}

fn refused(guest: &Guest, span: Span, what: &str, label: &str, help: &str) -> Box<Problem> {
    let message = format!("guest \"{}\": {what}", guest.name.value);
    let problem = Problem::new("protect", message).at(span, label).help(help);
    Box::new(problem)
}

/// The pages that a load goes into: the first byte of the first one, and the end of the last one.
fn pages(load: &Load) -> (u64, u64) {
    let (start, end) = (load.destination.0, load.destination.0 + load.size);
    (align_down(start, PAGE), align_up(end, PAGE).unwrap_or(end))
}

/// The leaves of load `index` that go into pages from `start` to `end`; `None` if there are none.
fn leaves(index: usize, load: &Load, start: u64, end: u64) -> Option<LeafRun> {
    let (first, last) = pages(load);
    let (start, end) = (start.max(first), end.min(last));
    if start >= end || load.size == 0 {
        return None;
    }
    Some(LeafRun {
        segment: u8::try_from(index).ok()?,
        first: u32::try_from((start - first) / PAGE).ok()?,
        count: u32::try_from((end - start) / PAGE).ok()?,
    })
}

/// Adds pages behind those that are there.
fn add(read_only: &mut Vec<PageRange>, start: u64, end: u64) {
    match read_only.last_mut() {
        _ if start >= end => {}
        Some(last) if last.start.0 + last.size == start => last.size += end - start,
        _ => read_only.push(PageRange {
            start: GuestAddr(start),
            size: end - start,
        }),
    }
}

/// The segments that the program does not write.
fn by_segments(
    guest: &Guest,
    span: Span,
    segments: &[ElfSegment],
    loads: &[Load],
) -> Result<Protected, Box<Problem>> {
    let mut protected = Protected::default();
    for (start, end) in constant(segments) {
        let whole = align_up(start, PAGE).unwrap_or(end);
        add(&mut protected.read_only, whole, align_down(end, PAGE));
        let mut loads = loads.iter().enumerate();
        let load = loads.find(|(_, load)| load.destination.0 == start);
        let run = load.and_then(|(index, load)| leaves(index, load, 0, u64::MAX));
        protected.leaves.extend(run);
    }
    if protected.leaves.is_empty() {
        let what = "its image has no segment that the program does not write";
        let help = "link its code apart from its data (program headers without PF_W), or name ranges: \
                    protect = { by = \"hash\", ranges = [\"0x4008_0000+64KiB\"] }";
        return Err(refused(guest, span, what, "protects nothing", help));
    }
    Ok(protected)
}

/// All memory of the guest is protected; what an ELF file says that its program does not write, the guest cannot write.
fn in_local_memory(image: &Image, local: Option<MemoryRange>) -> Protected {
    let mut protected = Protected {
        local,
        ..Protected::default()
    };
    if let Image::Elf { segments, .. } = image {
        for (start, end) in constant(segments) {
            let whole = align_up(start, PAGE).unwrap_or(end);
            add(&mut protected.read_only, whole, align_down(end, PAGE));
        }
    }
    protected
}

/// First byte and end of what an ELF file says that its program does not write, by rising address.
fn constant(segments: &[ElfSegment]) -> Vec<(u64, u64)> {
    let constant = segments.iter().filter(|it| !it.is_writable);
    let mut constant: Vec<_> = constant
        .map(|segment| (segment.address, segment.address + segment.memory_size))
        .collect();
    constant.sort_unstable();
    constant
}

/// The ranges that the description names.
fn listed(
    guest: &Guest,
    ranges: &[Spanned<Range>],
    loads: &[Load],
) -> Result<Protected, Box<Problem>> {
    let is_image = |load: &&Load| load.source == Source::Image && load.size > 0;
    let mut sorted: Vec<_> = ranges.iter().collect();
    sorted.sort_by_key(|range| range.value.start);
    let mut protected = Protected::default();
    for range in sorted {
        let (start, end) = (range.value.start, range.value.start + range.value.size);
        let mut at = start;
        while at < end {
            let mut images = loads.iter().filter(is_image).map(pages);
            let Some((_, last)) = images.find(|&(first, last)| first <= at && at < last) else {
                return Err(not_loaded(guest, range.span, at, loads));
            };
            at = last;
        }
        add(&mut protected.read_only, start, end);
        let loads = loads.iter().enumerate();
        let loads = loads.filter(|(_, load)| is_image(load));
        let runs = loads.filter_map(|(index, load)| leaves(index, load, start, end));
        protected.leaves.extend(runs);
    }
    Ok(protected)
}

/// Nothing of the image is in the page at this address, so it has no hash.
fn not_loaded(guest: &Guest, span: Span, at: u64, loads: &[Load]) -> Box<Problem> {
    let what =
        format!("nothing of its image is loaded into the page at {at:#x}, so it has no hash");
    let images = loads.iter().filter(|load| load.source == Source::Image);
    let places: Vec<_> = images
        .map(pages)
        .map(|(first, last)| units::range(first, last - first))
        .collect();
    let help = format!("its image takes the pages {}", places.join(", "));
    refused(guest, span, &what, "not all of it is in the image", &help)
}

#[cfg(test)]
// Tests may unwrap.
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn load(start: u64, size: u64) -> Load {
        Load {
            source: Source::Image,
            file_offset: 0,
            size,
            destination: GuestAddr(start),
        }
    }

    fn run(segment: u8, first: u32, count: u32) -> LeafRun {
        LeafRun {
            segment,
            first,
            count,
        }
    }

    fn read_only(start: u64, size: u64) -> PageRange {
        PageRange {
            start: GuestAddr(start),
            size,
        }
    }

    fn guest(protect: &str) -> Guest {
        use crate::description::Description;
        let text = format!(
            "[board]\nname = \"b\"\ncores = 1\nmemory = \"1GiB\"\n[[guest]]\nname = \"g\"\nkind = \"elf\"\n\
             image = \"i\"\nmemory = \"1MiB\"\nvcpus = [0]\nprotect = {protect}\n"
        );
        let (description, problems) = Description::parse(&text);
        assert_eq!(problems, []);
        description.unwrap().guests.remove(0)
    }

    fn segment(address: u64, memory_size: u64, is_writable: bool) -> ElfSegment {
        ElfSegment {
            file_offset: 0,
            file_size: memory_size,
            address,
            memory_size,
            is_writable,
        }
    }

    /// What is protected, or the message and the cure.
    fn protected(
        protect: &str,
        segments: Vec<ElfSegment>,
        loads: &[Load],
    ) -> Result<Protected, String> {
        let mut problems = Vec::new();
        let image = Image::Elf { entry: 0, segments };
        let found = of(&guest(protect), &image, loads, None, &mut problems);
        match problems.as_slice() {
            [] => Ok(found.unwrap().unwrap()),
            [problem] => Err(problem.message.clone()),
            many => unreachable!("{many:?}"),
        }
    }

    /// A page that a segment has only in part is compared as far as the segment goes, and stays writable.
    #[test]
    fn segments_that_are_not_written_are_protected() {
        let segments = vec![
            segment(0x8000, 0x500, true),
            segment(0x5000, 0x2800, false),
            segment(0x3800, 0x1800, false),
        ];
        let loads = [
            load(0x8000, 0x500),
            load(0x5000, 0x2800),
            load(0x3800, 0x1800),
        ];
        let found = protected("\"hash\"", segments, &loads).unwrap();
        assert_eq!(found.leaves, [run(2, 0, 2), run(1, 0, 3)]);
        assert_eq!(found.read_only, [read_only(0x4000, 0x3000)]);
    }

    #[test]
    fn an_image_without_such_segments_is_refused() {
        let found = protected("\"hash\"", vec![segment(0, 5, true)], &[load(0, 5)]);
        assert!(found.unwrap_err().contains("has no segment"));
    }

    #[test]
    fn listed_pages_are_protected_as_a_whole() {
        let ranges =
            "{ by = \"hash\", ranges = [\"0x3000+8KiB\", \"0x1000 + 8KiB\", \"0x8000+4KiB\"] }";
        let loads = [load(0x1800, 0x2800), load(0x4000, 0x900), load(0x8010, 8)];
        let found = protected(ranges, Vec::new(), &loads).unwrap();
        let leaves = [run(0, 0, 2), run(0, 2, 1), run(1, 0, 1), run(2, 0, 1)];
        assert_eq!(found.leaves, leaves);
        let pages = [read_only(0x1000, 0x4000), read_only(0x8000, 0x1000)];
        assert_eq!(found.read_only, pages);
    }

    #[test]
    fn a_listed_page_without_a_part_of_the_image_is_refused() {
        let ranges = "{ by = \"hash\", ranges = [\"0x1000+12KiB\"] }";
        let loads = [load(0x1000, 0x1001), load(0x4000, 8)];
        let message = protected(ranges, Vec::new(), &loads).unwrap_err();
        assert!(message.contains("the page at 0x3000"), "{message}");
    }

    #[test]
    fn more_pieces_than_the_packed_form_holds_are_refused() {
        let segments = (0..=MAX_RANGES as u64).map(|n| segment(0x2000 * n, 8, false));
        let loads: Vec<_> = (0..=MAX_RANGES as u64)
            .map(|n| load(0x2000 * n, 8))
            .collect();
        let message = protected("\"hash\"", segments.collect(), &loads).unwrap_err();
        assert!(message.contains("separate pieces"), "{message}");
    }
}
