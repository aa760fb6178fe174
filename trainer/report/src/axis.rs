//! Axes: map values to pixels, with ticks at round numbers.

use crate::number::{short, without_zeros};

/// Scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    #[default]
    Linear,
    /// Logarithmic; values at or below 0 are not shown.
    Log,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// Label with unit.
    pub label: String,
    /// The scale.
    pub scale: Scale,
    /// Shown range; `None`: fits the values.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), ..Axis::default() }
    }

    /// A logarithmic axis.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis { scale: Scale::Log, ..Axis::linear(label) }
    }

    /// The axis with a fixed range.
    pub fn within(self, low: f64, high: f64) -> Axis {
        Axis { range: Some((low, high)), ..self }
    }

    /// Range that shows these values.
    pub(crate) fn fit(&self, values: impl Iterator<Item = f64>, fit: Fit) -> Range {
        let is_shown = |value: &f64| value.is_finite() && (self.scale == Scale::Linear || *value > 0.0);
        let (mut low, mut high) = self.range.unwrap_or_else(|| {
            values.filter(is_shown).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
        });
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if low == high {
            let around = if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
            (low, high) = (low - around, high + around);
        } else if self.range.is_none() && fit == Fit::Loose {
            (low, high) = loosened(low, high, self.scale);
        }
        Range { low, high, scale: self.scale }
    }
}

/// Distance of a range from its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// From the smallest to the largest value.
    Tight,
    /// With a margin; starts at 0 if the smallest value is at most a quarter of the largest.
    Loose,
}

fn loosened(low: f64, high: f64, scale: Scale) -> (f64, f64) {
    if scale == Scale::Log {
        let margin = (high / low).powf(0.04);
        return (low / margin, high * margin);
    }
    let margin = (high - low) * 0.05;
    let from_zero = low >= 0.0 && low <= 0.25 * high;
    (if from_zero { 0.0 } else { low - margin }, high + margin)
}

/// Range of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Range {
    /// Maps the range to the pixels `from..to`.
    pub(crate) fn drawn(self, from: f64, to: f64) -> Drawn {
        Drawn { range: self, from, to }
    }

    /// About `n` round values within the range, with labels.
    pub(crate) fn ticks(&self, n: usize) -> Vec<(f64, String)> {
        if self.scale == Scale::Log {
            let ticks = self.log_ticks(n);
            if ticks.len() > 1 {
                return ticks;
            }
        }
        let step = nice_step((self.high - self.low) / n.max(1) as f64);
        let slack = step * 1e-6;
        let first = ((self.low - slack) / step).ceil() as i64;
        let last = ((self.high + slack) / step).floor() as i64;
        (first..=last).map(|place| place as f64 * step).map(|value| (value, named(value, step))).collect()
    }

    fn log_ticks(&self, n: usize) -> Vec<(f64, String)> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let within = |value: &f64| (self.low * (1.0 - 1e-9)..=self.high * (1.0 + 1e-9)).contains(value);
        let at = |factors: &[f64]| -> Vec<f64> {
            let decades = (first..=last).map(|power| 10f64.powi(power));
            decades.flat_map(|decade| factors.iter().map(move |f| f * decade)).filter(within).collect()
        };
        let fine =
            [at(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]), at(&[1.0, 2.0, 5.0]), at(&[1.0, 3.0]), at(&[1.0])];
        let chosen = fine.into_iter().find(|ticks| ticks.len() <= n.max(2) + 2).unwrap_or_else(|| {
            let all = at(&[1.0]);
            let every = all.len().div_ceil(n.max(2));
            all.into_iter().step_by(every).collect()
        });
        chosen.into_iter().map(|value| (value, short(value))).collect()
    }
}

/// Smallest of 1, 2, 5 and 10 times a power of ten that is at least `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let factor = rough / power;
    power
        * match factor {
            f if f <= 1.0 => 1.0,
            f if f <= 2.0 => 2.0,
            f if f <= 5.0 => 5.0,
            _ => 10.0,
        }
}

/// Label of a tick, with enough decimals to differ from its neighbors.
fn named(value: f64, step: f64) -> String {
    if value.abs() < step * 1e-6 {
        return "0".to_owned();
    }
    if step < 1e-4 || value.abs() >= 1e4 {
        let (unit, name) = match value.abs() {
            size if size >= 1e9 => (1e9, "G"),
            size if size >= 1e6 => (1e6, "M"),
            size if size >= 1e4 => (1e3, "k"),
            _ => return without_zeros(format!("{:.1}", value / step)) + &format!("×{step:.0e}"),
        };
        let decimals = decimals(step / unit);
        return without_zeros(format!("{:.decimals$}", value / unit)) + name;
    }
    format!("{value:.*}", decimals(step))
}

fn decimals(step: f64) -> usize {
    (-(step * 1.000_001).log10().floor()).max(0.0) as usize
}

/// A range and its pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drawn {
    range: Range,
    from: f64,
    to: f64,
}

impl Drawn {
    /// Pixel of a value; NaN if the scale cannot show it.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let Range { low, high, scale } = self.range;
        let share = match scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Log => (value / low).ln() / (high / low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    /// Pixel of a value, clamped to the ends of the axis.
    pub(crate) fn held(&self, value: f64) -> f64 {
        let (low, high) = (self.from.min(self.to), self.from.max(self.to));
        self.place(value).clamp(low, high)
    }

    /// Ticks as pixels and labels.
    pub(crate) fn ticks(&self, n: usize) -> Vec<(f64, String)> {
        self.range.ticks(n).into_iter().map(|(value, name)| (self.place(value), name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis, values: &[f64], n: usize) -> Vec<String> {
        axis.fit(values.iter().copied(), Fit::Tight).ticks(n).into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn ticks_are_round() {
        let linear = Axis::linear("x");
        assert_eq!(names(&linear, &[0.0, 1.0], 5), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(names(&linear, &[0.0, 499.0], 5), ["0", "100", "200", "300", "400"]);
        assert_eq!(names(&linear, &[-3.0, 2.0], 5), ["-3", "-2", "-1", "0", "1", "2"]);
        assert_eq!(names(&linear, &[0.0, 40_000.0], 4), ["0", "10k", "20k", "30k", "40k"]);
        assert_eq!(names(&linear, &[0.0, 2_500_000.0], 5), ["0", "500k", "1M", "1.5M", "2M", "2.5M"]);
        let log = Axis::log("x");
        assert_eq!(names(&log, &[1.0, 100.0], 6), ["1", "2", "5", "10", "20", "50", "100"]);
        assert_eq!(names(&log, &[1e-3, 1e5], 5), ["0.001", "0.1", "10", "1000", "100k"]);
        assert_eq!(names(&log, &[3.1, 3.9], 4).len(), 4, "less than a decade has ticks all the same");
    }

    #[test]
    fn places_follow_the_scale() {
        let log = Axis::log("x").fit([1.0, 100.0].into_iter(), Fit::Tight).drawn(0.0, 10.0);
        assert!((log.place(10.0) - 5.0).abs() < 1e-12);
        assert!(!log.place(-1.0).is_finite() && !log.place(0.0).is_finite());
        let down = Axis::linear("y").within(0.0, 4.0).fit([].into_iter(), Fit::Loose).drawn(100.0, 0.0);
        assert_eq!((down.place(1.0), down.held(9.0), down.held(-9.0)), (75.0, 0.0, 100.0));
    }

    #[test]
    fn ranges_hold_what_is_there() {
        let fit = |values: &[f64], fit| Axis::linear("y").fit(values.iter().copied(), fit);
        let range = fit(&[0.5, f64::NAN, 2.0], Fit::Loose);
        assert_eq!((range.low, range.high), (0.0, 2.075));
        let range = fit(&[80.0, 90.0], Fit::Loose);
        assert_eq!((range.low, range.high), (79.5, 90.5));
        let range = fit(&[3.0, 3.0], Fit::Loose);
        assert!(range.low < 3.0 && range.high > 3.0);
        let range = fit(&[], Fit::Tight);
        assert!(range.low < range.high, "nothing to show has an axis all the same");
    }
}
