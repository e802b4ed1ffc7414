// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device tree of each guest: generated, or the user's own one, completed.

mod generate;
mod seeds;
mod user;

use spumone_config::board::Board;
use spumone_config::description::Description;
use spumone_config::layout::{self, Plan};
use spumone_config::problem::Problem;

pub use user::check_form as check_user_blob;

/// A guest's device tree.
pub struct DeviceTree {
    /// The flattened tree.
    pub blob: Vec<u8>,
    /// Offset and size of each seed in the blob.
    pub seeds: Vec<(u64, u32)>,
}

impl DeviceTree {
    /// What packing needs of it.
    pub fn facts(&self) -> layout::DeviceTree {
        layout::DeviceTree {
            size: self.blob.len() as u64,
            seeds: self.seeds.clone(),
        }
    }
}

/// The device trees of all guests, in order; `blobs` are the user's own trees.
///
/// # Errors
///
/// All problems found.
pub fn all(
    description: &Description,
    board: &Board,
    blobs: &[Option<&[u8]>],
    plan: &Plan,
) -> Result<Vec<DeviceTree>, Vec<Problem>> {
    let names = description.guests.iter().map(|it| it.name.value.as_str());
    let names: Vec<_> = names.collect();
    let mut trees = Vec::new();
    let mut problems = Vec::new();
    for ((guest, blob), placed) in description.guests.iter().zip(blobs).zip(&plan.guests) {
        let tree = match blob {
            Some(blob) => user::complete(blob, guest, placed),
            None => generate::generate(guest, placed, board, &names).map_err(|error| {
                // Only names from the board file can be wrong here.
                let message = format!(
                    "guest \"{}\" gets no device tree: {error}",
                    guest.name.value
                );
                Box::new(
                    Problem::new("device-tree", message)
                        .at(guest.name.span, "this guest")
                        .help("correct `node` of its devices in the board file"),
                )
            }),
        };
        match tree {
            Ok(tree) => {
                let blob = tree.to_dtb();
                let seeds = match placed.is_local() {
                    true => Vec::new(),
                    false => seeds::find(&blob),
                };
                trees.push(DeviceTree { blob, seeds });
            }
            Err(problem) => problems.push(*problem),
        }
    }
    if problems.is_empty() {
        Ok(trees)
    } else {
        Err(problems)
    }
}
