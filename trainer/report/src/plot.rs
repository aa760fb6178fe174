//! Plots: one file per kind. Each is plain data with a `svg` that draws it.

pub mod bars;
pub mod boxes;
pub mod contours;
mod drawing;
mod frame;
pub mod lines;
pub mod plane;

/// How large a plot is drawn, in pixels; a page scales it to its column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// From left to right.
    pub width: f64,
    /// From top to bottom.
    pub height: f64,
}

impl Size {
    /// One of two that stand side by side.
    pub const HALF: Size = Size { width: 520.0, height: 320.0 };
    /// As wide as a page.
    pub const WHOLE: Size = Size { width: 880.0, height: 400.0 };
}

impl Default for Size {
    fn default() -> Size {
        Size::HALF
    }
}
