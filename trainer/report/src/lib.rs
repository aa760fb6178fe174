//! Reports of runs: pages, plots and event files, and the paper's numbers beside them.
//!
//! [`folder_page`] makes the page of a folder of runs; the rest is made of plain numbers.
//! A [`page::Page`] is one HTML file that needs nothing else. Plots are inline SVG whose colors are CSS classes, so that
//! they follow the page into the dark and onto paper; [`standalone`] gives a plot a style of its own. [`events`] are the
//! files that TensorBoard reads.

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
