//! HTML reports, plots and event files of runs, with the paper's numbers.
//!
//! [`folder_page`] reports on a folder of runs; everything else works on plain numbers. A [`page::Page`] is a
//! self-contained HTML file. Plots are inline SVG with colors from CSS classes, so that they follow dark mode and
//! print; [`standalone`] embeds the style into a plot. [`events`] writes files for TensorBoard.

mod axis;
pub mod density;
mod escape;
pub mod events;
pub mod folder_page;
mod number;
pub mod page;
pub mod paper;
pub mod plot;
pub mod recipe_plane;
pub mod statistics;
mod style;

pub use axis::{Axis, Scale};
pub use number::{grouped, short};
pub use style::standalone;
