//! The paper's experiments. Each trains its cells (a graph, a run file, seeds) once, records the runs, and derives
//! tables and figures from them.

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
pub mod tuned;
pub mod wallclock;
