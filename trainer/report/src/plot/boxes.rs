//! Box plots: median, quartiles, whiskers and outliers.

use super::{
    Size,
    frame::{Entry, Frame, Sample, left_of},
};
use crate::{
    axis::{Axis, Drawn, Fit},
    number::{px, short},
    style::color,
};

/// Maximum number of outliers drawn per box, including the lowest and highest.
const MAX_OUTLIERS: usize = 60;

/// Summary of values: median, quartiles, whiskers at the last values within 1.5 times the interquartile range, and
/// outliers.
#[derive(Clone, Debug, PartialEq)]
pub struct FiveNumbers {
    /// Lower whisker.
    pub low: f64,
    /// First quartile.
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// Upper whisker.
    pub high: f64,
    /// Outliers, ascending; a subset if there are many.
    pub outliers: Vec<f64>,
    /// Number of outliers not in `outliers`.
    pub n_left_out: usize,
    /// Number of values.
    pub n: usize,
}

impl FiveNumbers {
    /// Summary of all finite values; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<FiveNumbers> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (q1, median, q3) = (quantile(&sorted, 0.25)?, quantile(&sorted, 0.5)?, quantile(&sorted, 0.75)?);
        let reach = 1.5 * (q3 - q1);
        let first = sorted.partition_point(|value| *value < q1 - reach);
        let end = sorted.partition_point(|value| *value <= q3 + reach);
        let beyond: Vec<f64> = sorted[..first].iter().chain(&sorted[end..]).copied().collect();
        let outliers = spread_out(&beyond);
        Some(FiveNumbers {
            low: sorted[first].min(q1),
            q1,
            median,
            q3,
            high: sorted[end - 1].max(q3),
            n_left_out: beyond.len() - outliers.len(),
            outliers,
            n: sorted.len(),
        })
    }
}

/// Quantile of sorted values, interpolated linearly.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let place = share * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

/// At most [`MAX_OUTLIERS`] of the values, evenly spaced, both ends included.
fn spread_out(values: &[f64]) -> Vec<f64> {
    if values.len() <= MAX_OUTLIERS {
        return values.to_vec();
    }
    (0..MAX_OUTLIERS).map(|place| values[place * (values.len() - 1) / (MAX_OUTLIERS - 1)]).collect()
}

/// Boxes side by side, in groups.
#[derive(Clone, Debug, Default)]
pub struct Boxes {
    /// Title.
    pub title: String,
    /// Description in one sentence, for screen readers.
    pub description: String,
    /// Label of the groups.
    pub x_label: String,
    /// The vertical axis.
    pub y: Axis,
    /// Names of a group's boxes, in order; empty with one box per group.
    pub series: Vec<String>,
    /// The groups.
    pub groups: Vec<Group>,
    /// Size of the plot.
    pub size: Size,
}

/// A group of boxes.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Label below the boxes.
    pub name: String,
    /// One box per series; `None` leaves a gap.
    pub boxes: Vec<Option<FiveNumbers>>,
}

impl Boxes {
    /// Draws the boxes.
    pub fn svg(&self) -> String {
        let all = self.groups.iter().flat_map(|group| group.boxes.iter().flatten());
        let heights = all.flat_map(|five| [five.low, five.high].into_iter().chain(five.outliers.iter().copied()));
        let range = self.y.fit(heights, Fit::Loose);
        let left = left_of(&range, self.size.height - 90.0);
        let names = self.series.iter().enumerate();
        let legend: Vec<Entry<'_>> = names.map(|(color, name)| Entry { sample: Sample::Block, color, name }).collect();
        let mut frame = Frame::new(self.size, &self.title, &legend, left, 44.0);
        let y = frame.y_axis(&self.y, range);
        frame.x_label(&self.x_label);
        let room = (frame.right - frame.left) / self.groups.len().max(1) as f64;
        for (place, group) in self.groups.iter().enumerate() {
            let middle = frame.left + room * (place as f64 + 0.5);
            frame.drawing.text("tick mid", middle, frame.bottom + 17.0, &group.name);
            let n = group.boxes.len().max(1) as f64;
            let step = (room * 0.8 / n).min(56.0);
            for (series, five) in group.boxes.iter().enumerate() {
                let Some(five) = five else { continue };
                let x = middle + step * (series as f64 + 0.5 - n / 2.0);
                let name = match self.series.get(series) {
                    Some(series) => format!("{}, {series}", group.name),
                    None => group.name.clone(),
                };
                frame.drawing.enter(&color(series));
                five.draw(&mut frame, &y, x, step * 0.36, &name);
                frame.drawing.leave();
            }
        }
        frame.drawing.finish(&self.title, &self.description)
    }
}

impl FiveNumbers {
    fn draw(&self, frame: &mut Frame, y: &Drawn, x: f64, half: f64, name: &str) {
        let (low, q1, median, q3, high) =
            (y.held(self.low), y.held(self.q1), y.held(self.median), y.held(self.q3), y.held(self.high));
        let cap = half * 0.5;
        let (x0, from, to) = (px(x), px(x - cap), px(x + cap));
        let whiskers = [(q1, low), (q3, high)].map(|(inner, outer)| {
            let (inner, outer) = (px(inner), px(outer));
            format!("M{x0} {inner}L{x0} {outer}M{from} {outer}L{to} {outer}")
        });
        frame.drawing.path("thin", &whiskers.concat(), None);
        frame.drawing.rect("box", (x - half, q3), 2.0 * half, q1 - q3, Some(&self.tip(name)));
        frame.drawing.line("median", (x - half, median), (x + half, median));
        let arm = 2.5;
        let crosses = self.outliers.iter().map(|value| y.held(*value)).map(|y| {
            let (left, right, up, down) = (px(x - arm), px(x + arm), px(y - arm), px(y + arm));
            format!("M{left} {up}L{right} {down}M{left} {down}L{right} {up}")
        });
        frame.drawing.path("thin", &crosses.collect::<String>(), None);
    }

    fn tip(&self, name: &str) -> String {
        let outliers = match (self.outliers.len() + self.n_left_out, self.n_left_out) {
            (0, _) => "no outliers".to_owned(),
            (n, 0) => format!("{n} outliers"),
            (n, left_out) => format!("{n} outliers, {left_out} of them left out here"),
        };
        let [q1, median, q3] = [self.q1, self.median, self.q3].map(short);
        format!("{name}: median {median}, quartiles {q1} and {q3}, {} values, {outliers}", self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quartiles: numpy.percentile. Whiskers: matplotlib.cbook.boxplot_stats.
    #[test]
    fn five_numbers_are_those_of_numpy() {
        let five = FiveNumbers::of(&[7.0, 1.0, 2.0, f64::NAN, 4.0, 3.0, 30.0, -20.0]).unwrap();
        assert_eq!((five.q1, five.median, five.q3, five.n), (1.5, 3.0, 5.5, 7));
        assert_eq!((five.low, five.high), (1.0, 7.0));
        assert_eq!((five.outliers, five.n_left_out), (vec![-20.0, 30.0], 0));
        assert_eq!(FiveNumbers::of(&[f64::NAN]), None);
        let one = FiveNumbers::of(&[2.0]).unwrap();
        assert_eq!((one.low, one.median, one.high), (2.0, 2.0, 2.0));
    }

    #[test]
    fn many_outliers_are_a_few_and_a_count() {
        let mut values = vec![0.0; 1000];
        values.extend((1..=200).map(f64::from));
        let five = FiveNumbers::of(&values).unwrap();
        assert_eq!((five.outliers.len(), five.n_left_out), (MAX_OUTLIERS, 140));
        assert_eq!((five.outliers[0], five.outliers[MAX_OUTLIERS - 1]), (1.0, 200.0));
        let group = Group { name: "layer 1".to_owned(), boxes: vec![Some(five), None] };
        let series = vec!["GO".to_owned(), "DP".to_owned()];
        let svg = Boxes { groups: vec![group], series, ..Boxes::default() }.svg();
        assert!(svg.contains("layer 1, GO: median 0") && svg.contains("140 of them left out here"), "{svg}");
        assert_eq!(svg.matches("class=\"box\"").count(), 1);
        assert!(!svg.contains("NaN"));
    }
}
