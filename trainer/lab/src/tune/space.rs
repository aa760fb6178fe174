//! Search space: keys of a run file, each with a range or list of values.

use kith_draw::{exp, ln};
use kith_run::{
    config::RunConfig,
    run_file::{RunFile, Takes, find_key},
};
use serde::{Deserialize, Serialize};

use crate::tune::TuneError;

/// Searched keys, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Space(Vec<Dimension>);

/// One key and its values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dimension {
    /// Section and name, as in run files.
    pub key: String,
    /// Its values.
    pub values: Values,
}

/// The values of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Values {
    /// All numbers in a range.
    Range {
        /// The smallest.
        low: f64,
        /// The largest.
        high: f64,
        /// True for a logarithmic scale.
        is_log: bool,
        /// True for integers.
        is_whole: bool,
    },
    /// A list, in ascending order.
    Among(Vec<f64>),
}

/// Excludes a key from the search, on the command line.
const OFF: &str = "off";

impl Space {
    /// Search space of a run: the default keys, changed by `asked`, such as `optimizer.learning_rate=1e-3..0.1:log`,
    /// `model.hidden=4,8,16` or `edge_loss.edge_sampling_ratio=off`. The run file must accept every value.
    pub fn new(file: &RunFile, asked: &[String]) -> Result<Space, TuneError> {
        let config = file.resolve()?;
        let mut space = Space::usual(&config);
        for text in asked {
            let (key, values) = parse(text)?;
            space.0.retain(|dimension| values.is_some() || dimension.key != key);
            let Some(values) = values else { continue };
            match space.0.iter_mut().find(|dimension| dimension.key == key) {
                Some(dimension) => dimension.values = values,
                None => space.0.push(Dimension { key, values }),
            }
        }
        if space.0.is_empty() {
            return Err(TuneError::Space("nothing is left to search".to_owned()));
        }
        for dimension in &space.0 {
            for end in [0.0, 1.0] {
                let mut file = file.clone();
                file.set(&format!("{}={}", dimension.key, dimension.values.text(dimension.values.at(end))))?;
                file.resolve()?;
            }
        }
        Ok(space)
    }

    /// The paper's keys.
    fn usual(config: &RunConfig) -> Space {
        let log = |key: &str, low, high| Dimension {
            key: key.to_owned(),
            values: Values::Range { low, high, is_log: true, is_whole: false },
        };
        let among =
            |key: &str, values: &[f64]| Dimension { key: key.to_owned(), values: Values::Among(values.to_vec()) };
        let mut dimensions = vec![log("optimizer.weight_decay", 1e-8, 0.1)];
        if config.edge_loss.is_some() {
            dimensions.push(log("edge_loss.weight", 1e-6, 100.0));
            dimensions.push(among("edge_loss.neg_sample_ratio", &[0.3, 0.5, 0.7, 0.9]));
            dimensions.push(among("edge_loss.edge_sampling_ratio", &[0.6, 0.8, 1.0]));
        }
        Space(dimensions)
    }

    /// Keys and values, in order.
    pub fn dimensions(&self) -> &[Dimension] {
        &self.0
    }

    /// Values at a point of the unit cube.
    pub fn at(&self, point: &[f64]) -> Vec<f64> {
        self.0.iter().zip(point).map(|(dimension, place)| dimension.values.at(*place)).collect()
    }

    /// Point of values in the unit cube; a discrete value lies in the middle of its interval.
    pub fn place(&self, values: &[f64]) -> Vec<f64> {
        self.0.iter().zip(values).map(|(dimension, value)| dimension.values.place(*value)).collect()
    }

    /// The run file with `values` set.
    pub fn apply(&self, file: &RunFile, values: &[f64]) -> Result<RunFile, TuneError> {
        let mut file = file.clone();
        for (dimension, value) in self.0.iter().zip(values) {
            file.set(&format!("{}={}", dimension.key, dimension.values.text(*value)))?;
        }
        Ok(file)
    }
}

impl Values {
    fn at(&self, place: f64) -> f64 {
        match self {
            Values::Among(values) => {
                let index = (place * values.len() as f64) as usize;
                values[index.min(values.len() - 1)]
            }
            Values::Range { low, high, is_log, is_whole } => {
                let value = match is_log {
                    // exp(ln(x)) may miss the ends by rounding.
                    true if place <= 0.0 => *low,
                    true if place >= 1.0 => *high,
                    true => exp(ln(*low) + place * (ln(*high) - ln(*low))),
                    false => low + place * (high - low),
                };
                let value = if *is_whole { value.round() } else { value };
                value.clamp(*low, *high)
            }
        }
    }

    fn place(&self, value: f64) -> f64 {
        match self {
            Values::Among(values) => {
                let index = values.iter().position(|known| *known >= value).unwrap_or(values.len() - 1);
                (index as f64 + 0.5) / values.len() as f64
            }
            Values::Range { low, high, is_log: true, .. } => (ln(value) - ln(*low)) / (ln(*high) - ln(*low)),
            Values::Range { low, high, .. } => (value - low) / (high - low),
        }
    }

    fn text(&self, value: f64) -> String {
        match self {
            Values::Range { is_whole: true, .. } => format!("{value:.0}"),
            // A list of integers may belong to an integer key.
            Values::Among(values) if values.iter().all(|value| value.fract() == 0.0) => format!("{value:.0}"),
            _ => format!("{value:?}"),
        }
    }
}

/// Parses a key and its values; `None` if it is excluded.
fn parse(text: &str) -> Result<(String, Option<Values>), TuneError> {
    let wrong = |problem: String| TuneError::Space(format!("--tune {text}: {problem}"));
    let how =
        "expected KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A,B,C, for example optimizer.learning_rate=1e-3..0.1:log";
    let (key, typed) = text.split_once('=').ok_or_else(|| wrong(how.to_owned()))?;
    let (key, typed) = (key.trim(), typed.trim());
    let known = find_key(key)
        .ok_or_else(|| wrong(format!("a run file has no `{key}` (docs/reference/run-file.md lists its keys)")))?;
    let key = &*known.name;
    let is_whole = match known.takes {
        Takes::Number(..) => false,
        Takes::Count(..) => true,
        _ => return Err(wrong(format!("`{key}` is no number"))),
    };
    if typed == OFF {
        return Ok((key.to_owned(), None));
    }
    let number = |text: &str| {
        let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let number = number.ok_or_else(|| wrong(format!("{text:?} is no number: {how}")))?;
        match is_whole && number.fract() != 0.0 {
            true => Err(wrong(format!("`{key}` is a whole number, {text} is not"))),
            false => Ok(number),
        }
    };
    let (range, is_log) = match typed.split_once(':') {
        None => (typed, false),
        Some((range, "log")) => (range, true),
        Some(_) => return Err(wrong(how.to_owned())),
    };
    let values = match range.split_once("..") {
        Some((low, high)) => {
            let (low, high) = (number(low)?, number(high)?);
            if low >= high {
                return Err(wrong(format!("{low} is not below {high}")));
            }
            if is_log && low <= 0.0 {
                return Err(wrong(format!("{low} has no logarithm: begin above 0")));
            }
            Values::Range { low, high, is_log, is_whole }
        }
        None if is_log => return Err(wrong(how.to_owned())),
        None => {
            let mut values = range.split(',').map(number).collect::<Result<Vec<f64>, _>>()?;
            values.sort_by(f64::total_cmp);
            values.dedup();
            if values.len() < 2 {
                return Err(wrong("one value leaves nothing to search: use --set".to_owned()));
            }
            Values::Among(values)
        }
    };
    Ok((key.to_owned(), Some(values)))
}

#[cfg(test)]
mod tests {
    use kith_run::preset::Preset;

    use super::*;

    fn space(preset: &str, asked: &[&str]) -> Result<Space, String> {
        let file = Preset::get(preset).and_then(Preset::run_file).unwrap();
        let asked: Vec<String> = asked.iter().map(|text| (*text).to_owned()).collect();
        Space::new(&file, &asked).map_err(|error| error.to_string())
    }

    fn keys(space: &Space) -> Vec<&str> {
        space.dimensions().iter().map(|dimension| dimension.key.as_str()).collect()
    }

    #[test]
    fn the_usual_keys_are_those_of_the_model() {
        let usual = [
            "optimizer.weight_decay",
            "edge_loss.weight",
            "edge_loss.neg_sample_ratio",
            "edge_loss.edge_sampling_ratio",
        ];
        assert_eq!(keys(&space("cora/supergat-mx", &[]).unwrap()), usual);
        assert_eq!(keys(&space("cora/gcn", &[]).unwrap()), ["optimizer.weight_decay"]);
        let asked = [
            "edge_loss.edge_sampling_ratio=off",
            "optimizer.learning_rate=1e-3..0.1:log",
            "edge_loss.neg_sample_ratio=0.5..2",
        ];
        let changed = space("cora/supergat-mx", &asked).unwrap();
        assert_eq!(keys(&changed), [&usual[..3], &["optimizer.learning_rate"]].concat());
        let range = Values::Range { low: 0.5, high: 2.0, is_log: false, is_whole: false };
        assert_eq!(changed.dimensions()[2].values, range);
    }

    #[test]
    fn points_of_the_cube_are_values() {
        let asked = ["train.epochs=10..20", "model.hidden=16,4,8", "model.dropout=0.1..0.9"];
        let space = space("cora/supergat-mx", &asked).unwrap();
        assert_eq!(space.at(&[0.0, 1.0, 0.0, 1.0, 0.5, 0.0, 0.5]), [1e-8, 100.0, 0.3, 1.0, 15.0, 4.0, 0.5]);
        assert_eq!(space.at(&[1.0, 0.0, 0.26, 0.5, 0.96, 0.7, 1.0]), [0.1, 1e-6, 0.5, 0.8, 20.0, 16.0, 0.9]);
        let middle = space.at(&[0.5; 7]);
        assert!((middle[0] / 10f64.powf(-4.5) - 1.0).abs() < 1e-12, "{middle:?}");
        let place = space.place(&middle);
        assert!(
            place.iter().zip([0.5, 0.5, 0.625, 0.5, 0.5, 0.5, 0.5]).all(|(a, b)| (a - b).abs() < 1e-12),
            "{place:?}"
        );
        let file = Preset::get("cora/supergat-mx").and_then(Preset::run_file).unwrap();
        let config = space.apply(&file, &middle).unwrap().resolve().unwrap();
        assert_eq!((config.train.epochs, config.model.hidden, config.model.dropout), (15, 8, 0.5));
        assert_eq!(config.optimizer.weight_decay, middle[0], "texts keep every bit");
    }

    #[test]
    fn every_mistake_is_a_sentence() {
        let how = "expected KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A,B,C, for example \
                   optimizer.learning_rate=1e-3..0.1:log";
        for (asked, sentence) in [
            ("optimizer.weight_decay", format!("--tune optimizer.weight_decay: {how}")),
            (
                "train.rate=0..1",
                "--tune train.rate=0..1: a run file has no `train.rate` (docs/reference/run-file.md lists its keys)"
                    .into(),
            ),
            ("model.kind=0..1", "--tune model.kind=0..1: `model.kind` is no number".into()),
            ("model.dropout=a..1", format!("--tune model.dropout=a..1: \"a\" is no number: {how}")),
            ("model.dropout=0.5..0.1", "--tune model.dropout=0.5..0.1: 0.5 is not below 0.1".into()),
            ("model.dropout=0..0.5:log", "--tune model.dropout=0..0.5:log: 0 has no logarithm: begin above 0".into()),
            ("model.dropout=0.1..0.5:ln", format!("--tune model.dropout=0.1..0.5:ln: {how}")),
            ("model.hidden=4..8.5", "--tune model.hidden=4..8.5: `model.hidden` is a whole number, 8.5 is not".into()),
            ("model.dropout=0.5", "--tune model.dropout=0.5: one value leaves nothing to search: use --set".into()),
            (
                "model.dropout=0.5..1",
                "--set model.dropout=1.0: `model.dropout` must be a number from 0 below 1, not 1.0".into(),
            ),
            (
                "edge_loss.edge_sampling_ratio=0.5..1",
                "preset cora/gcn: `edge_loss` is for a supergat: a gcn has no such loss".into(),
            ),
            ("optimizer.weight_decay=off", "nothing is left to search".into()),
        ] {
            assert_eq!(space("cora/gcn", &[asked]).unwrap_err(), sentence, "{asked}");
        }
    }
}
