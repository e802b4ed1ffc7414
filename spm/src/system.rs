// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a system (description, board file, guest files), checks it and decides its addresses.

use crate::device_tree::{self, DeviceTree};
use crate::failure::{Failure, Source, Sources};
use crate::guest_files::{Contents, Reader, Store};
use crate::hypervisor::{ASSUMED_SIZE, Hypervisor};
use crate::input::{self, Files};
use crate::progress::Progress;
use clap::Args;
use spumone_config::board::Board;
use spumone_config::description::Description;
use spumone_config::layout::{self, Packed, Plan};
use spumone_config::packed::Sections;
use spumone_config::problem::Problem;
use spumone_config::types::MAX_GUESTS;
use std::path::{Path, PathBuf};

/// The arguments that select a system.
#[derive(Args)]
pub struct SystemArgs {
    /// The system description; paths in it are relative to its folder.
    #[arg(value_name = "SYSTEM.toml")]
    pub description: PathBuf,
    /// The hypervisor's ELF file [default: where `make` leaves it, in target/].
    #[arg(long, value_name = "ELF")]
    pub hypervisor: Option<PathBuf>,
}

/// The board files that come with `spm`, for descriptions outside a source tree.
const BUILT_IN_BOARDS: &[(&str, &str)] =
    &[("qemu-virt", include_str!("../../boards/qemu-virt.toml"))];

/// A system that passed all checks.
pub struct System {
    /// The description.
    pub description: Description,
    /// The text of the description and the board file.
    pub sources: Sources,
    /// The machine.
    pub board: Board,
    /// The content of the guests' files, in the guests' order.
    pub contents: Vec<Contents>,
    /// What goes where in memory.
    pub plan: Plan,
    /// The guests' device trees.
    pub trees: Vec<DeviceTree>,
    /// The packed form.
    pub packed: Packed,
}

/// Reads and checks the system described at `path`, for this hypervisor; without one, a size is assumed.
pub fn load(
    path: &Path,
    hypervisor: Option<&Hypervisor>,
    progress: &Progress,
) -> Result<System, Failure> {
    load_from(&input::read, path, hypervisor, progress)
}

/// The same, with all files read by `files`.
pub fn load_from(
    files: &Files,
    path: &Path,
    hypervisor: Option<&Hypervisor>,
    progress: &Progress,
) -> Result<System, Failure> {
    let hypervisor_size = hypervisor.map_or(ASSUMED_SIZE, |it| it.bytes.len() as u64);
    let sections = hypervisor.map_or(Sections::default(), |it| it.sections.clone());
    progress.step("checking the description");
    let text = input::text(files, path).map_err(|error| {
        Failure::io("read", path, &error).help("name a description, such as systems/demo.toml")
    })?;
    let mut sources = Sources {
        description: Source {
            path: path.to_owned(),
            text: text.as_str().into(),
        },
        board: None,
    };
    let (description, mut problems) = Description::parse(&text);
    let Some(description) = description else {
        return Err(Failure::refused(problems, &sources));
    };
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let board = match read_board(files, &description, &folder, &mut sources)? {
        Ok(board) => board,
        Err(more) => {
            problems.extend(more);
            return Err(Failure::refused(problems, &sources));
        }
    };
    progress.step("reading the guests' files");
    let machine = description.board.memory.value.min(board.memory.max);
    let mut store = Store::new(files);
    let contents: Vec<_> = description
        .guests
        .iter()
        // More are refused, and need not be read.
        .take(MAX_GUESTS)
        .map(|guest| {
            let reader = Reader {
                store: &mut store,
                guest,
                scheduler: &description.scheduler,
                folder: &folder,
                max_memory: machine,
            };
            reader.read(&mut problems)
        })
        .collect();
    // The packed bytes of a file that was unpacked are needed no longer.
    drop(store);
    let known: Vec<_> = contents
        .iter()
        .map(|contents| contents.as_ref().map(|it| it.files.clone()))
        .collect();
    let plan = match layout::plan(&description, &board, &known, hypervisor_size) {
        Ok(plan) if problems.is_empty() => plan,
        result => {
            problems.extend(result.err().unwrap_or_default());
            return Err(Failure::refused(problems, &sources));
        }
    };
    progress.step("making device trees");
    let contents: Vec<_> = contents.into_iter().flatten().collect();
    let blobs = contents
        .iter()
        .map(|it| it.dtb.as_deref().map(Vec::as_slice));
    let blobs: Vec<_> = blobs.collect();
    let trees = device_tree::all(&description, &board, &blobs, &plan)
        .map_err(|problems| Failure::refused(problems, &sources))?;
    let facts: Vec<_> = trees.iter().map(DeviceTree::facts).collect();
    let packed = layout::pack(&description, &board, &plan, &facts, &sections)
        .map_err(|problem| Failure::refused(vec![*problem], &sources))?;
    Ok(System {
        description,
        sources,
        board,
        contents,
        plan,
        trees,
        packed,
    })
}

/// The board that the description names: `boards/NAME.toml` in its folder or one above it, or
/// else a built-in one.
fn read_board(
    files: &Files,
    description: &Description,
    folder: &Path,
    sources: &mut Sources,
) -> Result<Result<Board, Vec<Problem>>, Failure> {
    let name = &description.board.name;
    let file = PathBuf::from("boards").join(format!("{}.toml", name.value));
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let source = match name.value.chars().all(plain) {
        true => find_board(files, &name.value, &file, folder)?,
        false => None,
    };
    let Some(source) = source else {
        let known: Vec<_> = BUILT_IN_BOARDS
            .iter()
            .map(|(name, _)| format!("\"{name}\""))
            .collect();
        let message = format!("there is no board \"{}\"", name.value);
        let help = format!(
            "write {}, or put a {} into the description's folder or one above it",
            known.join(" or "),
            file.display()
        );
        let problem = Problem::new("no-such-board", message).at(name.span, "no such board file");
        return Ok(Err(vec![problem.help(help)]));
    };
    let board = Board::parse(&source.text);
    sources.board = Some(source);
    Ok(board)
}

fn find_board(
    files: &Files,
    name: &str,
    file: &Path,
    folder: &Path,
) -> Result<Option<Source>, Failure> {
    let start = std::path::absolute(folder.join("."))
        .map_err(|error| Failure::io("find the folder", folder, &error))?;
    let mut unread = None;
    for above in start.ancestors() {
        let path = above.join(file);
        match input::text(files, &path) {
            Ok(text) => {
                return Ok(Some(Source {
                    path: shortened(path),
                    text: text.into(),
                }));
            }
            Err(error) if error.is_missing() => {}
            // In a folder above, the name may belong to another project, and be no board file.
            Err(error) if above != start && error.is_out_of_reach() => {
                unread.get_or_insert_with(|| Failure::io("read", &path, &error));
            }
            Err(error) => return Err(Failure::io("read", &path, &error)),
        }
    }
    let built_in = BUILT_IN_BOARDS
        .iter()
        .find(|(built_in, _)| *built_in == name);
    match (built_in, unread) {
        (None, Some(failure)) => Err(failure),
        (built_in, _) => Ok(built_in.map(|(_, text)| Source {
            path: file.to_owned(),
            text: (*text).into(),
        })),
    }
}

/// A path relative to the current folder, if it is below it.
fn shortened(path: PathBuf) -> PathBuf {
    std::env::current_dir()
        .ok()
        .and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned))
        .unwrap_or(path)
}
