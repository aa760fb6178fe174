//! Contour plots of densities, for several sets of points in one plane.

use std::collections::HashMap;

use super::{
    Size,
    drawing::path_through,
    frame::{Entry, Frame, Sample, left_of},
};
use crate::{
    axis::{Axis, Fit},
    density::Density,
    style::color,
};

/// Number of contours of each set, evenly spaced in height.
const N_LEVELS: usize = 10;
/// Grid points of the density along each axis.
const N_PLACES: usize = 97;

/// Contours over one plane.
#[derive(Clone, Debug, Default)]
pub struct Contours {
    /// Title.
    pub title: String,
    /// Description in one sentence, for screen readers.
    pub description: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The sets of points.
    pub sets: Vec<Set>,
    /// Size of the plot.
    pub size: Size,
}

/// One set of points.
#[derive(Clone, Debug)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// Density of its points.
    pub density: Density,
}

impl Contours {
    /// Draws the contours.
    pub fn svg(&self) -> String {
        let extents: Vec<[f64; 4]> = self.sets.iter().map(|set| set.density.extent()).collect();
        let y_range = self.y.fit(extents.iter().flat_map(|extent| [extent[2], extent[3]]), Fit::Tight);
        let x_range = self.x.fit(extents.iter().flat_map(|extent| [extent[0], extent[1]]), Fit::Tight);
        let left = left_of(&y_range, self.size.height - 90.0);
        let sets = self.sets.iter().enumerate();
        let legend: Vec<Entry<'_>> =
            sets.map(|(color, set)| Entry { sample: Sample::Line, color, name: &set.name }).collect();
        let mut frame = Frame::new(self.size, &self.title, &legend, left, 44.0);
        let y = frame.y_axis(&self.y, y_range);
        let x = frame.x_axis(&self.x, x_range, true);
        for (place, (set, extent)) in self.sets.iter().zip(&extents).enumerate() {
            let field = Field::of(&set.density, *extent);
            let top = field.values.iter().copied().fold(0.0, f64::max);
            frame.drawing.enter(&color(place));
            for level in 1..=N_LEVELS {
                let share = level as f64 / (N_LEVELS + 1) as f64;
                let loops = field.contours(top * share);
                let drawn =
                    |ring: &Vec<(f64, f64)>| path_through(ring.iter().map(|(a, b)| (x.held(*a), y.held(*b)))) + "Z";
                let tip = format!("{}: {:.0}% of the highest density", set.name, 100.0 * share);
                frame.drawing.path("level", &loops.iter().map(drawn).collect::<String>(), Some(&tip));
            }
            frame.drawing.leave();
        }
        frame.drawing.finish(&self.title, &self.description)
    }
}

/// A density at the points of a grid. It is zero on the border, so that every contour closes.
struct Field {
    extent: [f64; 4],
    values: Vec<f64>,
}

/// An edge of the grid: from a grid point to the right, or upward.
type Side = (usize, bool);

impl Field {
    fn of(density: &Density, extent: [f64; 4]) -> Field {
        let mut field = Field { extent, values: vec![0.0; N_PLACES * N_PLACES] };
        for row in 1..N_PLACES - 1 {
            for column in 1..N_PLACES - 1 {
                let (x, y) = field.place(column as f64, row as f64);
                field.values[row * N_PLACES + column] = density.at(x, y);
            }
        }
        field
    }

    fn place(&self, column: f64, row: f64) -> (f64, f64) {
        let [left, right, low, high] = self.extent;
        let last = (N_PLACES - 1) as f64;
        (left + (right - left) * column / last, low + (high - low) * row / last)
    }

    /// Closed contour lines at a height, by marching squares.
    fn contours(&self, level: f64) -> Vec<Vec<(f64, f64)>> {
        // Each crossed edge leads to two others, one in each of the adjacent squares.
        let mut next: HashMap<Side, Vec<Side>> = HashMap::new();
        let mut sides: Vec<Side> = Vec::new();
        for corner in (0..N_PLACES - 1).flat_map(|row| (0..N_PLACES - 1).map(move |column| row * N_PLACES + column)) {
            for (a, b) in self.crossings(corner, level).into_iter().flatten() {
                for (from, to) in [(a, b), (b, a)] {
                    let known = next.entry(from).or_default();
                    if known.is_empty() {
                        sides.push(from);
                    }
                    known.push(to);
                }
            }
        }
        let mut rings = Vec::new();
        for start in sides {
            let mut ring = Vec::new();
            let mut side = start;
            // Visited edges are removed, so that a ring ends at its start.
            while let Some(around) = next.remove(&side) {
                ring.push(self.crossing(side, level));
                let Some(onward) = around.into_iter().find(|other| next.contains_key(other)) else { break };
                side = onward;
            }
            if ring.len() > 2 {
                rings.push(ring);
            }
        }
        rings
    }

    /// Pairs of edges that a contour connects within a square.
    fn crossings(&self, corner: usize, level: f64) -> [Option<(Side, Side)>; 2] {
        let corners = [corner, corner + 1, corner + N_PLACES + 1, corner + N_PLACES];
        let is_above = corners.map(|place| self.values[place] > level);
        let (bottom, right) = ((corner, false), (corner + 1, true));
        let (top, left) = ((corner + N_PLACES, false), (corner, true));
        let cut: Vec<Side> = [(bottom, 0), (right, 1), (top, 2), (left, 3)]
            .into_iter()
            .filter(|(_, place)| is_above[*place] != is_above[(place + 1) % 4])
            .map(|(side, _)| side)
            .collect();
        match cut[..] {
            [a, b] => [Some((a, b)), None],
            [_, _, _, _] => {
                // A saddle: the center's height decides which corners are connected.
                let middle = corners.iter().map(|place| self.values[*place]).sum::<f64>() / 4.0;
                if (middle > level) == is_above[0] {
                    [Some((bottom, right)), Some((top, left))]
                } else {
                    [Some((bottom, left)), Some((top, right))]
                }
            }
            _ => [None, None],
        }
    }

    /// Point at which a contour crosses an edge.
    fn crossing(&self, (from, is_upward): Side, level: f64) -> (f64, f64) {
        let to = if is_upward { from + N_PLACES } else { from + 1 };
        let share = (level - self.values[from]) / (self.values[to] - self.values[from]);
        let (column, row) = ((from % N_PLACES) as f64, (from / N_PLACES) as f64);
        if is_upward { self.place(column, row + share) } else { self.place(column + share, row) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with this height at each point of the unit square.
    fn field(height: impl Fn(f64, f64) -> f64) -> Field {
        let mut field = Field { extent: [0.0, 1.0, 0.0, 1.0], values: vec![0.0; N_PLACES * N_PLACES] };
        for place in 0..N_PLACES * N_PLACES {
            let (x, y) = field.place((place % N_PLACES) as f64, (place / N_PLACES) as f64);
            field.values[place] = height(x, y);
        }
        field
    }

    #[test]
    fn the_contour_of_a_cone_is_a_circle() {
        let cone = field(|x, y| 1.0 - (x - 0.5).hypot(y - 0.5));
        let rings = cone.contours(0.7);
        assert_eq!(rings.len(), 1, "one closed line");
        for (x, y) in &rings[0] {
            assert!(((x - 0.5).hypot(y - 0.5) - 0.3).abs() < 1e-3, "{x} {y}");
        }
        assert!(rings[0].len() > 150, "{}", rings[0].len());
        assert!(cone.contours(1.1).is_empty());
    }

    #[test]
    fn two_hills_have_two_rings_that_become_one() {
        let hill = |x: f64, y: f64, at: f64| (-40.0 * ((x - at).powi(2) + (y - 0.5).powi(2))).exp();
        let hills = field(|x, y| hill(x, y, 0.3) + hill(x, y, 0.7));
        assert_eq!((hills.contours(0.8).len(), hills.contours(0.1).len()), (2, 1));
    }

    #[test]
    fn sets_are_drawn_in_their_colors() {
        let points: Vec<(f64, f64)> = (0..300).map(f64::from).map(|i| ((i * 0.7).sin(), (i * 1.3).cos())).collect();
        let set = |name: &str| Set { name: name.to_owned(), density: Density::of(&points, None).unwrap() };
        let svg =
            Contours { title: "Weights".to_owned(), sets: vec![set("MX"), set("SD")], ..Contours::default() }.svg();
        assert_eq!(svg.matches("class=\"level\"").count(), 2 * N_LEVELS);
        assert!(svg.contains("SD: 45% of the highest density") && !svg.contains("NaN"), "{svg}");
        assert!(svg.len() < 200_000, "{} bytes", svg.len());
    }
}
