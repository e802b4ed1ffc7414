// SPDX-License-Identifier: MIT OR Apache-2.0
//! SVG to PNG, with only the embedded font.

use crate::failure::Failure;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};
use std::sync::Arc;

/// Pixels of the PNG per pixel of the SVG, for dense screens.
const SCALE: f32 = 2.0;
const FAMILY: &str = "DejaVu Sans";

/// The picture as PNG.
///
/// # Errors
///
/// It is not valid SVG.
pub fn png(svg: &str) -> Result<Vec<u8>, Failure> {
    let failed =
        |what: String| Failure::new(format!("the picture cannot be turned into PNG: {what}"));
    let mut options = Options {
        font_family: FAMILY.into(),
        ..Options::default()
    };
    let fonts = Arc::make_mut(&mut options.fontdb);
    for font in [dejavu::sans::regular(), dejavu::sans::bold()] {
        fonts.load_font_data(font.to_vec());
    }
    fonts.set_sans_serif_family(FAMILY);
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let size = tree.size();
    let (width, height) = (size.width() * SCALE, size.height() * SCALE);
    let mut picture = Pixmap::new(width.ceil() as u32, height.ceil() as u32)
        .ok_or_else(|| failed("it has no size".into()))?;
    resvg::render(
        &tree,
        Transform::from_scale(SCALE, SCALE),
        &mut picture.as_mut(),
    );
    picture
        .encode_png()
        .map_err(|error| failed(error.to_string()))
}
