//! Plots: one file per kind. Each is plain data with a method `svg`.

pub mod bars;
pub mod boxes;
pub mod contours;
mod drawing;
mod frame;
pub mod lines;
pub mod plane;

/// Size of a plot in pixels; a page scales it to its column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Size {
    /// Half a page wide: two plots side by side.
    pub const HALF: Size = Size { width: 520.0, height: 320.0 };
    /// As wide as a page.
    pub const WHOLE: Size = Size { width: 880.0, height: 400.0 };
}

impl Default for Size {
    fn default() -> Size {
        Size::HALF
    }
}
