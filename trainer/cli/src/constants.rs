//! Constants of a machine: what a unit of work costs on it. `kith bench constants` measures them, `kith plan` predicts with them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use kith_run::files::{make_folder, publish_bytes};
use serde::{Deserialize, Serialize};

/// Version of the file's format.
const FORMAT: u32 = 2;

/// Constants that every file has: name, unit, meaning. Those of models are beside these, see [`COMPUTE`], and those of numbers of
/// processes, see [`CROWD`] and [`WAIT`].
pub(crate) const NAMES: [(&str, &str, &str); 22] = [
    ("local.slice", "s", "CPU time of a mini-batch of local shards, whatever its size"),
    ("local.edge", "s", "CPU time to sample an edge of a local shard, relabeling included"),
    ("local.vector", "s", "CPU time to look up a feature vector"),
    ("local.byte", "s", "CPU time to gather a byte of local features"),
    ("local.pair", "s", "CPU time to draw and look up a pair of the edge loss in a local shard"),
    ("client.call", "s", "CPU time of a rank for a call to a sampling server"),
    ("client.edge", "s", "CPU time of a rank to receive a sampled edge"),
    ("client.vector", "s", "CPU time of a rank to ask a server for a feature vector"),
    ("client.byte", "s", "CPU time of a rank to receive a byte of features"),
    ("client.pair", "s", "CPU time of a rank to draw a pair and have it looked up by a server"),
    ("server.call", "s", "CPU time of a server for a call"),
    ("server.edge", "s", "CPU time of a server to sample an edge"),
    ("server.vector", "s", "CPU time of a server to look up a feature vector"),
    ("server.byte", "s", "CPU time of a server to send a byte of features"),
    ("server.pair", "s", "CPU time of a server to look up a pair"),
    ("update.step", "s", "time of the optimizer, whatever the number of weights"),
    ("update.weight", "s", "time of the optimizer for a weight"),
    ("ring.hop", "s", "time of one hop of the ring in which ranks add gradients, on one host"),
    ("ring.byte", "s", "time to pass a byte of gradients to the next rank of the host"),
    ("link.latency", "s", "round trip of a small message over the loopback device"),
    ("disk.page", "s", "time to read 4 KiB at a random place of the disk"),
    ("threads.serial", "share", "share of forward and backward that more threads do not speed up"),
];

/// Parts of forward and backward: unit of work, meaning. A constant is named by the model and the part: `gat.edge`.
pub(crate) const COMPUTE: [(&str, &str); N_PARTS] = [
    ("step", "time of a step, whatever its size"),
    ("multiply", "time to multiply and add two numbers of a weight matrix"),
    ("input", "time of an input number of a layer: its activation and dropout"),
    ("edge", "time of an edge, for each head: its score and dropout"),
    ("feature", "time of an edge, for each head and each of its features"),
    ("pair", "time of a pair of the edge loss, for each head and each of its features"),
];

/// Number of parts of forward and backward.
pub(crate) const N_PARTS: usize = 6;

/// Prefix of the crowding of a number of busy cores: `crowd.4.sample`, `crowd.4.compute`.
pub(crate) const CROWD: &str = "crowd.";

/// Prefix of the waits of a number of ranks for each other: `wait.4`.
pub(crate) const WAIT: &str = "wait.";

/// Prefix of constants of the GPU.
pub(crate) const GPU: &str = "gpu.";

/// One constant: the median of several rounds, the least and the greatest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Constant {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
    pub(crate) unit: String,
    pub(crate) meaning: String,
}

/// Constants of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Constants {
    format: u32,
    /// Version of Kith that measured them.
    pub(crate) kith: String,
    /// Processor, as the system calls it.
    pub(crate) machine: String,
    /// Cores that could be used.
    pub(crate) cores: usize,
    /// Device of the constants of models with the prefix `gpu.`, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// Largest relative error of the measured runs, by the constants that explain them.
    pub(crate) errors: BTreeMap<String, f64>,
    pub(crate) constants: BTreeMap<String, Constant>,
}

impl Constant {
    pub(crate) fn new(median: f64, rounds: &[f64], unit: &str, meaning: &str) -> Constant {
        Constant {
            median,
            least: rounds.iter().copied().fold(median, f64::min),
            greatest: rounds.iter().copied().fold(median, f64::max),
            unit: unit.to_owned(),
            meaning: meaning.to_owned(),
        }
    }
}

/// The middle of some values, or of the middle two.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0
}

impl Constants {
    pub(crate) fn new(machine: String, cores: usize, device: Option<String>) -> Constants {
        let kith = env!("CARGO_PKG_VERSION").to_owned();
        Constants { format: FORMAT, kith, machine, cores, device, errors: BTreeMap::new(), constants: BTreeMap::new() }
    }

    /// The median of a constant; 0 for one that the file does not have.
    pub(crate) fn get(&self, name: &str) -> f64 {
        self.constants.get(name).map_or(0.0, |constant| constant.median)
    }

    /// Constants of forward and backward of a model, in the order of [`COMPUTE`].
    pub(crate) fn compute(&self, model: &str, on_gpu: bool) -> anyhow::Result<[f64; COMPUTE.len()]> {
        let prefix = if on_gpu { GPU } else { "" };
        if !self.constants.contains_key(&format!("{prefix}{model}.step")) {
            let (what, option) = if on_gpu { (" on a GPU", " --device cuda") } else { ("", "") };
            bail!("expected constants of the model {model}{what}, found none: run `kith bench constants{option}`");
        }
        Ok(COMPUTE.map(|(part, _)| self.get(&format!("{prefix}{model}.{part}"))))
    }

    /// Factor by which `part` (`sample` or `compute`) takes longer while `n_busy` cores are busy. More processes than cores share
    /// them.
    pub(crate) fn crowding(&self, part: &str, n_busy: f64, cores: usize) -> f64 {
        let within = n_busy.clamp(1.0, cores.max(1) as f64);
        let measured = self.by_number(CROWD, &format!(".{part}"));
        // A machine with more cores than the measured one is as crowded at the same share of them.
        let at = 1.0 + (within - 1.0) * (self.cores as f64 - 1.0).max(0.0) / (cores as f64 - 1.0).max(1.0);
        interpolated(measured, at).unwrap_or(1.0) * (n_busy / within).max(1.0)
    }

    /// Time that `n_ranks` ranks wait for the slowest in a step, relative to their CPU time. More ranks than were measured wait as long
    /// as those.
    pub(crate) fn wait(&self, n_ranks: usize) -> f64 {
        let mut measured = self.by_number(WAIT, "");
        measured.push((1.0, 0.0));
        interpolated(measured, n_ranks as f64).unwrap_or(0.0)
    }

    /// Numbers of processes, and the constants of these that begin and end like this.
    fn by_number(&self, begin: &str, end: &str) -> Vec<(f64, f64)> {
        let number = |name: &str| name.strip_prefix(begin)?.strip_suffix(end)?.parse().ok();
        self.constants.iter().filter_map(|(name, constant)| Some((number(name)?, constant.median))).collect()
    }

    /// Reads a file of constants, and checks all that a prediction divides or multiplies by.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Constants> {
        let text = fs::read_to_string(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow!(
                "{}: no constants of this machine: measure them with `kith bench constants` (about three minutes), or give a \
                 file with --constants",
                path.display()
            ),
            _ => anyhow!("{}: {error}", path.display()),
        })?;
        let wrong = |problem: String| {
            anyhow!(
                "{}: expected constants of `kith bench constants`, found {problem}: measure them again",
                path.display()
            )
        };
        let constants: Constants = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if constants.format != FORMAT {
            return Err(wrong(format!("format {} instead of {FORMAT}", constants.format)));
        }
        if let Some((name, ..)) = NAMES.iter().find(|(name, ..)| !constants.constants.contains_key(*name)) {
            return Err(wrong(format!("no {name}")));
        }
        for (name, Constant { median, .. }) in &constants.constants {
            if !median.is_finite() || *median < 0.0 {
                return Err(wrong(format!("{name} = {median}")));
            }
        }
        Ok(constants)
    }

    /// Writes a file of constants, which appears complete.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        make_folder(folder)?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        Ok(publish_bytes(path, text.as_bytes())?)
    }

    /// The file of this machine's constants in the user's cache.
    pub(crate) fn default_path() -> anyhow::Result<PathBuf> {
        let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = given.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        let cache = cache.context("neither HOME nor XDG_CACHE_HOME is set: give a file of constants")?;
        Ok(cache.join("kith/constants.json"))
    }
}

/// Value at `at` of a line through the points, if there are some.
fn interpolated(mut points: Vec<(f64, f64)>, at: f64) -> Option<f64> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let after = points.iter().position(|(x, _)| *x >= at);
    Some(match after {
        None => points.last()?.1,
        Some(0) => points[0].1,
        Some(place) => {
            let ((x0, y0), (x1, y1)) = (points[place - 1], points[place]);
            y0 + (y1 - y0) * (at - x0) / (x1 - x0)
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Constants with round numbers.
    pub(crate) fn some() -> Constants {
        let mut constants = Constants::new("a machine".to_owned(), 4, None);
        let mut put = |name: &str, value: f64| {
            constants.constants.insert(name.to_owned(), Constant::new(value, &[], "s", "a test"));
        };
        NAMES.iter().for_each(|(name, ..)| put(name, 1e-7));
        put("threads.serial", 0.1);
        for kind in ["gat", "supergat"] {
            COMPUTE.iter().for_each(|(part, _)| put(&format!("{kind}.{part}"), 1e-9));
        }
        for (n, sample, compute) in [(1, 1.0, 1.0), (2, 1.2, 1.1), (4, 2.0, 1.4)] {
            put(&format!("crowd.{n}.sample"), sample);
            put(&format!("crowd.{n}.compute"), compute);
        }
        for (n, share) in [(2, 0.05), (8, 0.2)] {
            put(&format!("wait.{n}"), share);
        }
        constants
    }

    #[test]
    fn files_are_read_as_they_were_written() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("new/constants.json");
        some().write(&path).unwrap();
        assert_eq!(Constants::read(&path).unwrap(), some());
        some().write(&path).unwrap();
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "drafts do not stay");
    }

    #[test]
    fn foreign_and_damaged_files_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("constants.json");
        let refused = |text: &str| {
            fs::write(&path, text).unwrap();
            Constants::read(&path).unwrap_err().to_string()
        };
        let text = serde_json::to_string(&some()).unwrap();
        for (damaged, expected) in [
            (text[..text.len() / 2].to_owned(), "EOF"),
            ("{\"format\":1}".to_owned(), "missing field"),
            ("hello".to_owned(), "expected value"),
            (text.replacen("\"format\":2", "\"format\":1", 1), "format 1 instead of 2"),
            (text.replacen("ring.hop", "ring.hip", 1), "no ring.hop"),
            (text.replacen("\"median\":0.1", "\"median\":-1", 1), "threads.serial = -1"),
            (text.replacen("\"kith\"", "\"kit\"", 1), "unknown field"),
        ] {
            let sentence = refused(&damaged);
            assert!(sentence.contains(expected), "{sentence}");
            assert!(sentence.contains("constants.json: ") && sentence.ends_with("measure them again"), "{sentence}");
        }
        fs::remove_file(&path).unwrap();
        let sentence = Constants::read(&path).unwrap_err().to_string();
        assert!(sentence.contains("measure them with `kith bench constants`"), "{sentence}");
    }

    #[test]
    fn busy_cores_slow_each_other_down() {
        let constants = some();
        let of = |n_busy: f64, cores: usize| constants.crowding("sample", n_busy, cores);
        assert_eq!([of(0.5, 4), of(1.0, 4), of(2.0, 4), of(3.0, 4), of(4.0, 4)], [1.0, 1.0, 1.2, 1.6, 2.0]);
        assert_eq!(of(8.0, 4), 4.0, "two processes per core");
        assert_eq!((of(7.0, 7), of(4.0, 7)), (2.0, 1.0 + 0.2 + 0.4 * 0.5 - 0.0));
        assert_eq!(of(1.0, 1), 1.0);
        assert_eq!(constants.crowding("compute", 4.0, 4), 1.4);
    }

    #[test]
    fn more_ranks_wait_longer() {
        let constants = some();
        assert_eq!([1, 2, 5, 8, 64].map(|n| (1e6 * constants.wait(n)).round()), [0.0, 5e4, 1.25e5, 2e5, 2e5]);
        assert_eq!(Constants::new("none".to_owned(), 1, None).wait(2), 0.0);
    }

    #[test]
    fn models_without_constants_are_refused() {
        let constants = some();
        assert_eq!(constants.compute("gat", false).unwrap(), [1e-9; N_PARTS]);
        let sentence = constants.compute("gin", false).unwrap_err().to_string();
        assert!(sentence.ends_with("model gin, found none: run `kith bench constants`"), "{sentence}");
        let sentence = constants.compute("gat", true).unwrap_err().to_string();
        assert!(sentence.contains("gat on a GPU") && sentence.contains("--device cuda"), "{sentence}");
    }
}
