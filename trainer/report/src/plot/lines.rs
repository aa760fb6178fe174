//! Line plots: series of points with error bands or bars, and reference lines.

use super::{
    Size,
    drawing::path_through,
    frame::{Entry, Frame, Sample, left_of},
};
use crate::{
    axis::{Axis, Drawn, Fit},
    number::{px, short},
    style::color,
};

/// Maximum number of points of a series that draws a marker at each.
const MAX_MARKS: usize = 40;
/// Maximum number of points with a tooltip in a longer series.
const MAX_HITS: usize = 80;

/// Line plot.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Title.
    pub title: String,
    /// Description in one sentence, for screen readers.
    pub description: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves.
    pub series: Vec<Series>,
    /// Reference lines.
    pub references: Vec<Reference>,
    /// Size of the plot.
    pub size: Size,
}

/// One curve.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Name; curves with the same name share a legend entry.
    pub name: String,
    /// Points, from left to right; one that is not finite is a gap.
    pub points: Vec<(f64, f64)>,
    /// Lower and upper error of each point; empty for none.
    pub reach: Vec<(f64, f64)>,
    /// Style of the errors.
    pub shown: Reach,
    /// Color; `None`: by position among the series.
    pub color: Option<usize>,
    /// True if dashed, as curves to compare with are.
    pub is_dashed: bool,
    /// True if drawn thin, as one of many.
    pub is_thin: bool,
}

/// Style of errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// An area around the curve.
    #[default]
    Band,
    /// A bar at each point.
    Bars,
}

/// A dashed horizontal line.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    /// Its name.
    pub name: String,
    /// Its height.
    pub y: f64,
    /// Its color.
    pub color: usize,
}

impl Lines {
    /// Draws the plot.
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let reach = self.series.iter().flat_map(|series| series.reach.iter().flat_map(|(low, high)| [*low, *high]));
        let heights = points().map(|point| point.1).chain(reach).chain(self.references.iter().map(|line| line.y));
        let y_range = self.y.fit(heights, Fit::Loose);
        let x_range = self.x.fit(points().map(|point| point.0), Fit::Tight);
        let left = left_of(&y_range, self.size.height - 90.0);
        let mut frame = Frame::new(self.size, &self.title, &self.legend(), left, 44.0);
        let y = frame.y_axis(&self.y, y_range);
        let x = frame.x_axis(&self.x, x_range, false);
        for Reference { name, y: height, color: series } in &self.references {
            frame.drawing.enter(&color(*series));
            let place = y.held(*height);
            let path = path_through([(frame.left, place), (frame.right, place)]);
            frame.drawing.path("line dashed", &path, Some(&format!("{name}: {}", short(*height))));
            frame.drawing.leave();
        }
        for (place, series) in self.series.iter().enumerate() {
            frame.drawing.enter(&color(series.color.unwrap_or(place)));
            series.draw(&mut frame, &x, &y, &self.x.label);
            frame.drawing.leave();
        }
        frame.drawing.finish(&self.title, &self.description)
    }

    fn legend(&self) -> Vec<Entry<'_>> {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        for (place, series) in self.series.iter().enumerate() {
            if !entries.iter().any(|entry| entry.name == series.name) {
                let sample = if series.is_dashed { Sample::Dashed } else { Sample::Line };
                entries.push(Entry { sample, color: series.color.unwrap_or(place), name: &series.name });
            }
        }
        let of_reference = |line: &Reference| line.color;
        let references = self.references.iter();
        entries.extend(references.map(|line| Entry {
            sample: Sample::Dashed,
            color: of_reference(line),
            name: &line.name,
        }));
        entries
    }
}

impl Series {
    fn draw(&self, frame: &mut Frame, x: &Drawn, y: &Drawn, x_label: &str) {
        let placed: Vec<(f64, f64)> = self.points.iter().map(|point| (x.place(point.0), y.held(point.1))).collect();
        if !self.reach.is_empty() {
            self.draw_reach(frame, &placed, y);
        }
        let class = match (self.is_dashed, self.is_thin) {
            (true, _) => "line dashed",
            (false, true) => "thin",
            (false, false) => "line",
        };
        let last = self.points.iter().rev().find(|point| point.1.is_finite());
        let tip = last.map(|(_, last)| format!("{}: last {}", self.name, short(*last)));
        frame.drawing.path(class, &path_through(thinned(&placed)), tip.as_deref());
        let has_marks = placed.len() <= MAX_MARKS && !self.is_dashed;
        let every = if has_marks { 1 } else { placed.len().div_ceil(MAX_HITS).max(1) };
        let (class, radius) = if has_marks { ("mark", 3.2) } else { ("hit", 4.5) };
        for place in (0..placed.len()).step_by(every).filter(|place| (placed[*place].0 + placed[*place].1).is_finite())
        {
            frame.drawing.dot(class, placed[place], radius, Some(&self.tip(place, x_label)));
        }
    }

    fn tip(&self, place: usize, x_label: &str) -> String {
        let (x, y) = self.points[place];
        let reach = self.reach.get(place).map(|(low, high)| format!(" ({} to {})", short(*low), short(*high)));
        format!("{}: {}{} at {x_label} {}", self.name, short(y), reach.unwrap_or_default(), short(x))
    }

    fn draw_reach(&self, frame: &mut Frame, placed: &[(f64, f64)], y: &Drawn) {
        let low = || placed.iter().zip(&self.reach).map(|(point, reach)| (point.0, y.held(reach.0)));
        let high = || placed.iter().zip(&self.reach).map(|(point, reach)| (point.0, y.held(reach.1)));
        match self.shown {
            Reach::Band => {
                let is_whole = |point: &(f64, f64)| point.0.is_finite() && point.1.is_finite();
                let up = thinned(&high().filter(is_whole).collect::<Vec<_>>());
                let down = thinned(&low().filter(is_whole).collect::<Vec<_>>());
                let around = path_through(up.into_iter().chain(down.into_iter().rev()));
                frame.drawing.path("band", &(around + "Z"), None);
            }
            Reach::Bars => {
                for ((x, low), (_, high)) in low().zip(high()).filter(|(low, high)| (low.1 + high.1).is_finite()) {
                    let (left, right, x, low, high) = (px(x - 3.0), px(x + 3.0), px(x), px(low), px(high));
                    let bar = format!("M{x} {low}L{x} {high}M{left} {low}L{right} {low}M{left} {high}L{right} {high}");
                    frame.drawing.path("thin", &bar, None);
                }
            }
        }
    }
}

/// Points of a long path that pixels can show: the first, lowest, highest and last of each column of pixels.
fn thinned(placed: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let column = |point: &(f64, f64)| if point.0.is_finite() { point.0.floor() as i64 } else { i64::MIN };
    let mut kept = Vec::new();
    for chunk in placed.chunk_by(|a, b| column(a) == column(b)) {
        if chunk.len() <= 4 {
            kept.extend_from_slice(chunk);
            continue;
        }
        let by = |a: &usize, b: &usize| chunk[*a].1.total_cmp(&chunk[*b].1);
        let whole = || (0..chunk.len()).filter(|place| chunk[*place].1.is_finite());
        let mut places: Vec<usize> =
            [Some(0), whole().min_by(by), whole().max_by(by), Some(chunk.len() - 1)].into_iter().flatten().collect();
        places.sort_unstable();
        places.dedup();
        kept.extend(places.into_iter().map(|place| chunk[place]));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(n: usize) -> Lines {
        let points =
            (0..n).map(|place| (place as f64, if place == n / 2 { 9.0 } else { (place % 2) as f64 })).collect();
        let series = vec![Series { name: "loss <1>".to_owned(), points, ..Series::default() }];
        Lines { title: "Loss".to_owned(), x: Axis::linear("step"), series, ..Lines::default() }
    }

    #[test]
    fn long_series_stay_small_and_keep_their_peaks() {
        let svg = lines(1_000_000).svg();
        assert!(svg.len() < 60_000, "{} bytes", svg.len());
        let placed: Vec<(f64, f64)> = lines(100_000).series[0].points.iter().map(|p| (p.0 / 200.0, p.1)).collect();
        let kept = thinned(&placed);
        assert!(kept.len() <= 4 * 500 + 4, "{}", kept.len());
        assert!(kept.iter().any(|point| point.1 == 9.0), "the one peak is shown");
        assert_eq!((kept.first(), kept.last()), (placed.first(), placed.last()));
    }

    #[test]
    fn short_series_show_every_point() {
        let svg = lines(5).svg();
        assert_eq!(svg.matches("class=\"mark\"").count(), 5);
        assert!(svg.contains("loss &lt;1&gt;: 9 at step 2"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn spread_and_references_are_drawn() {
        let mut lines = lines(5);
        lines.series[0].reach = vec![(0.0, 2.0); 5];
        lines.references = vec![Reference { name: "paper".to_owned(), y: 20.0, color: 3 }];
        let band = lines.svg();
        assert!(band.contains("class=\"band\"") && band.contains("paper: 20"), "{band}");
        assert!(band.contains(">20</text>"), "the axis reaches what is compared with: {band}");
        lines.series[0].shown = Reach::Bars;
        assert_eq!(lines.svg().matches("class=\"thin\"").count(), 5);
    }

    #[test]
    fn a_log_axis_leaves_out_what_has_no_logarithm() {
        let mut lines = lines(5);
        lines.x = Axis::log("degree");
        let svg = lines.svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn nothing_is_drawn_without_points() {
        let svg = Lines { title: "Empty".to_owned(), ..Lines::default() }.svg();
        assert!(svg.ends_with("</svg>") && !svg.contains("NaN"), "{svg}");
    }
}
