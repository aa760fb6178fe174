//! The paper's experiments: each a set of cells (a graph, a run file, run keys) whose runs are trained once and kept, and what
//! is read off them.

pub mod agreement;
pub mod attention;
pub mod bench;
mod curves;
pub mod error;
pub mod experiment;
pub mod findings;
pub mod graph;
pub mod grid;
pub mod kept;
mod lines;
pub mod links;
pub mod presets;
pub mod sensitivity;
pub mod speed;
pub mod subject;
pub mod synthetic;
pub mod table;
pub mod tune;
pub mod wallclock;
