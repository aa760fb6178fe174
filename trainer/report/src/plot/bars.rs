//! Horizontal stacked bars.

use super::{
    Size,
    drawing::width_of,
    frame::{Entry, Frame, Sample},
};
use crate::{
    axis::{Axis, Fit},
    number::short,
    style::color,
};

/// Height of a bar, and of the gap below it.
const BAR: f64 = 26.0;
const FREE: f64 = 12.0;
/// Number of bars beyond which bars are lower.
const MANY: usize = 12;

/// Stacked bars.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// Title.
    pub title: String,
    /// Description in one sentence, for screen readers.
    pub description: String,
    /// Label of the axis.
    pub x_label: String,
    /// Unit after a number, such as `s`.
    pub unit: String,
    /// Names of the parts, from the left.
    pub parts: Vec<String>,
    /// The bars, from the top.
    pub bars: Vec<Bar>,
    /// Width in pixels; the height follows from the bars.
    pub width: f64,
}

/// One bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Label in front of the bar.
    pub name: String,
    /// Length of each part.
    pub lengths: Vec<f64>,
}

impl Bar {
    fn total(&self) -> f64 {
        self.lengths.iter().filter(|length| length.is_finite()).sum()
    }
}

impl Bars {
    /// Draws the bars.
    pub fn svg(&self) -> String {
        let is_shown =
            |part: usize| self.bars.iter().any(|bar| bar.lengths.get(part).is_some_and(|length| *length > 0.0));
        let parts: Vec<(usize, &String)> = self.parts.iter().enumerate().filter(|(part, _)| is_shown(*part)).collect();
        let legend: Vec<Entry<'_>> =
            parts.iter().map(|(color, name)| Entry { sample: Sample::Block, color: *color, name }).collect();
        let (bar_height, free) = if self.bars.len() > MANY { (14.0, 4.0) } else { (BAR, FREE) };
        let n_legend_rows =
            1.0 + (legend.iter().map(|entry| width_of(entry.name) + 38.0).sum::<f64>() / self.width).floor();
        let height = 40.0 + 20.0 * n_legend_rows + (bar_height + free) * self.bars.len() as f64 + 44.0;
        let size = Size { width: self.width, height };
        let left = 16.0 + self.bars.iter().map(|bar| width_of(&bar.name)).fold(0.0, f64::max).max(20.0);
        let mut frame = Frame::new(size, &self.title, &legend, left, 44.0);
        // The sum is written behind a bar.
        frame.right -= 50.0;
        let most = self.bars.iter().map(Bar::total).fold(0.0, f64::max);
        let axis = Axis::linear(&self.x_label).within(0.0, if most > 0.0 { most } else { 1.0 });
        let x = frame.x_axis(&axis, axis.fit([].into_iter(), Fit::Tight), true);
        for (place, bar) in self.bars.iter().enumerate() {
            let top = frame.top + 4.0 + (bar_height + free) * place as f64;
            let base = top + bar_height / 2.0 + 4.0;
            frame.drawing.text("end", frame.left - 8.0, base, &bar.name);
            let total = bar.total();
            let mut from = 0.0;
            for (part, name) in &parts {
                let length = bar.lengths.get(*part).copied().filter(|length| *length > 0.0).unwrap_or(0.0);
                if length == 0.0 {
                    continue;
                }
                let (left, right) = (x.place(from), x.place(from + length));
                let share = format!("{:.0}%", 100.0 * length / total);
                let tip = format!("{}, {name}: {}{}, {share}", bar.name, short(length), self.spaced_unit());
                frame.drawing.enter(&color(*part));
                frame.drawing.rect("block", (left, top), right - left, bar_height, Some(&tip));
                frame.drawing.leave();
                if right - left > width_of(&share) + 8.0 && bar_height > 16.0 {
                    frame.drawing.text("inside mid", (left + right) / 2.0, base, &share);
                }
                from += length;
            }
            let sum = format!("{}{}", short(total), self.spaced_unit());
            frame.drawing.text("tick", x.place(from) + 6.0, base, &sum);
        }
        frame.drawing.finish(&self.title, &self.description)
    }

    fn spaced_unit(&self) -> String {
        if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_stacked_and_told() {
        let bar = |name: &str, lengths: &[f64]| Bar { name: name.to_owned(), lengths: lengths.to_vec() };
        let bars = Bars {
            title: "Time".to_owned(),
            unit: "s".to_owned(),
            parts: ["sample", "never", "compute"].map(String::from).to_vec(),
            bars: vec![bar("rank 0", &[1.0, 0.0, 3.0]), bar("rank 1", &[2.0, 0.0, 1.0])],
            width: 500.0,
            ..Bars::default()
        };
        let svg = bars.svg();
        assert!(svg.contains("rank 0, compute: 3 s, 75%") && svg.contains("rank 1, sample: 2 s, 67%"), "{svg}");
        assert!(!svg.contains("never"), "what no bar has is not in the legend");
        let widths: Vec<f64> = svg
            .split("<rect class=\"block\"")
            .filter(|piece| piece.contains("<title>rank"))
            .filter_map(|piece| piece.split("width=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(widths.len(), 4);
        assert!((widths[1] / widths[0] - 3.0).abs() < 0.01, "{widths:?}");
        assert!(!svg.contains("NaN"));
        assert!(!Bars { width: 300.0, ..Bars::default() }.svg().contains("NaN"), "no bars are drawn too");
    }
}
