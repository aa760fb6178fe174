//! A plane of cells with a logarithmic horizontal and a linear vertical axis, and points on top.

use super::{
    Size,
    drawing::width_of,
    frame::{Entry, Frame, Sample},
};
use crate::{
    axis::{Axis, Drawn, Fit},
    number::short,
    style::color,
};

/// A plane of cells.
#[derive(Clone, Debug, Default)]
pub struct Plane {
    /// Title.
    pub title: String,
    /// Description in one sentence, for screen readers.
    pub description: String,
    /// Label of the columns.
    pub x_label: String,
    /// Label of the rows.
    pub y_label: String,
    /// Center of each column, positive and ascending.
    pub columns: Vec<f64>,
    /// Center of each row, ascending.
    pub rows: Vec<f64>,
    /// The kinds of cells.
    pub kinds: Vec<Kind>,
    /// The cells, row by row from the bottom; `None` is left blank.
    pub cells: Vec<Vec<Option<Cell>>>,
    /// Points on top.
    pub points: Vec<Point>,
    /// Size of the plot.
    pub size: Size,
}

/// A kind of cells.
#[derive(Clone, Debug, Default)]
pub struct Kind {
    /// Name in the legend.
    pub name: String,
    /// Its color.
    pub color: usize,
}

/// One cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// A short label.
    pub label: String,
    /// Index into [`Plane::kinds`].
    pub kind: usize,
    /// The size of a dot in it, from 0 to 1.
    pub dot: Option<f64>,
    /// Tooltip, after its position.
    pub tip: String,
}

/// A point on top of the cells.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Label beside the point.
    pub name: String,
    /// Horizontal position.
    pub x: f64,
    /// Vertical position.
    pub y: f64,
    /// True if highlighted.
    pub is_own: bool,
}

impl Plane {
    /// Draws the plane.
    pub fn svg(&self) -> String {
        let kinds = self.kinds.iter();
        let legend: Vec<Entry<'_>> =
            kinds.map(|kind| Entry { sample: Sample::Cell, color: kind.color, name: &kind.name }).collect();
        let mut frame = Frame::new(self.size, &self.title, &legend, 56.0, 46.0);
        let across = borders(&self.columns, |a, b| (a * b).sqrt(), |edge, inner| edge * edge / inner);
        let upward = borders(&self.rows, |a, b| (a + b) / 2.0, |edge, inner| 2.0 * edge - inner);
        let (x, y) = self.axes(&mut frame, &across, &upward);
        let names = self.name_points(&frame, &x, &y);
        let dots = self.points.iter().map(|point| Area::around((x.held(point.x), y.held(point.y)), point.radius()));
        let taken: Vec<Area> = names.iter().map(|name| name.area).chain(dots).collect();
        for (row, cells) in self.cells.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                let (Some(cell), Some([left, right]), Some([low, high])) =
                    (cell, across.get(column..column + 2), upward.get(row..row + 2))
                else {
                    continue;
                };
                let area =
                    Area { left: x.place(*left), right: x.place(*right), top: y.place(*high), bottom: y.place(*low) };
                self.draw_cell(&mut frame, cell, (self.columns[column], self.rows[row]), area, &taken);
            }
        }
        self.draw_points(&mut frame, &x, &y, &names);
        frame.drawing.finish(&self.title, &self.description)
    }

    fn axes(&self, frame: &mut Frame, across: &[f64], upward: &[f64]) -> (Drawn, Drawn) {
        let ends = |borders: &[f64]| borders.first().copied().zip(borders.last().copied());
        let (left, right) = ends(across).unwrap_or((1.0, 10.0));
        let (low, high) = ends(upward).unwrap_or((0.0, 1.0));
        let axis = Axis::log(&self.x_label).within(left, right);
        let x = axis.fit([].into_iter(), Fit::Tight).drawn(frame.left, frame.right);
        let y = Axis::linear("").within(low, high).fit([].into_iter(), Fit::Tight).drawn(frame.bottom, frame.top);
        frame.x_label(&self.x_label);
        frame.y_label(&self.y_label);
        let mut end = f64::NEG_INFINITY;
        for column in &self.columns {
            let (place, name) = (x.place(*column), short(*column));
            let half = width_of(&name) / 2.0;
            if place - half > end + 3.0 {
                frame.drawing.text("tick mid", place, frame.bottom + 16.0, &name);
                end = place + half;
            }
        }
        for row in &self.rows {
            frame.drawing.text("tick end", frame.left - 7.0, y.place(*row) + 4.0, &short(*row));
        }
        (x, y)
    }

    /// Draws a cell, and its label unless the space is taken.
    fn draw_cell(&self, frame: &mut Frame, cell: &Cell, middle: (f64, f64), area: Area, taken: &[Area]) {
        let kind = self.kinds.get(cell.kind);
        let place = format!("{} {}, {} {}", self.x_label, short(middle.0), self.y_label, short(middle.1));
        let what = if cell.tip.is_empty() { kind.map_or("", |kind| &kind.name) } else { &cell.tip };
        let (width, height) = (area.right - area.left, area.bottom - area.top);
        frame.drawing.enter(&color(kind.map_or(cell.kind, |kind| kind.color)));
        frame.drawing.rect("cell", (area.left, area.top), width, height, Some(&format!("{place}: {what}")));
        let (x, y) = area.middle();
        if let Some(dot) = cell.dot.filter(|dot| *dot > 0.0) {
            let most = (width.min(height) / 2.0 - 2.0).max(1.0);
            frame.drawing.dot("spot", (x, y), most * dot.min(1.0).sqrt(), None);
        }
        frame.drawing.leave();
        let half = width_of(&cell.label) / 2.0;
        let label = Area { left: x - half - 3.0, right: x + half + 3.0, top: y - 6.0, bottom: y + 6.0 };
        if 2.0 * half <= width + 2.0 && !taken.iter().any(|taken| label.covers(taken)) {
            frame.drawing.text("mid", x, y + 4.0, &cell.label);
        }
    }

    fn draw_points(&self, frame: &mut Frame, x: &Drawn, y: &Drawn, names: &[Name]) {
        for point in &self.points {
            let class = if point.is_own { "own" } else { "point" };
            let place = format!("{} {}, {} {}", self.x_label, short(point.x), self.y_label, short(point.y));
            let tip = format!("{}: {place}", point.name);
            frame.drawing.dot(class, (x.held(point.x), y.held(point.y)), point.radius(), Some(&tip));
        }
        for Name { point, class, x, area } in names {
            let point = &self.points[*point];
            let class = if point.is_own { format!("{class} strong") } else { (*class).to_owned() };
            frame.drawing.text(&class, *x, area.middle().1 + 4.0, &point.name);
        }
    }

    /// Labels beside their points that cover neither a point nor another label.
    fn name_points(&self, frame: &Frame, x: &Drawn, y: &Drawn) -> Vec<Name> {
        let places: Vec<(f64, f64)> = self.points.iter().map(|point| (x.held(point.x), y.held(point.y))).collect();
        let mut taken: Vec<Area> = places.iter().map(|place| Area::around(*place, 5.0)).collect();
        let mut names = Vec::new();
        // Highlighted points are labeled first.
        let (own, others): (Vec<usize>, Vec<usize>) = (0..places.len()).partition(|place| self.points[*place].is_own);
        for number in own.into_iter().chain(others) {
            let point = &self.points[number];
            let beside = beside(places[number], width_of(&point.name) + 2.0, if point.is_own { 12.0 } else { 8.0 });
            let inside = || beside.iter().filter(|(_, area)| area.is_within(frame));
            let is_free =
                |area: &Area| taken.iter().enumerate().all(|(other, taken)| other == number || !area.covers(taken));
            let Some((class, area)) = inside().find(|(_, area)| is_free(area)).or_else(|| inside().next()) else {
                continue;
            };
            let x = match *class {
                "halo" => area.left,
                "halo end" => area.right,
                _ => area.middle().0,
            };
            taken.push(*area);
            names.push(Name { point: number, class, x, area: *area });
        }
        names
    }
}

impl Point {
    fn radius(&self) -> f64 {
        if self.is_own { 8.0 } else { 4.5 }
    }
}

/// Position of a point's label.
struct Name {
    point: usize,
    class: &'static str,
    x: f64,
    area: Area,
}

/// A rectangle of the drawing.
#[derive(Clone, Copy)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    fn around((x, y): (f64, f64), radius: f64) -> Area {
        Area { left: x - radius, right: x + radius, top: y - radius, bottom: y + radius }
    }

    fn middle(&self) -> (f64, f64) {
        ((self.left + self.right) / 2.0, (self.top + self.bottom) / 2.0)
    }

    fn covers(&self, other: &Area) -> bool {
        let across = self.left < other.right && other.left < self.right;
        across && self.top < other.bottom && other.top < self.bottom
    }

    fn is_within(&self, frame: &Frame) -> bool {
        let across = self.left >= frame.left && self.right <= frame.right;
        across && self.top >= frame.top - 2.0 && self.bottom <= frame.bottom + 2.0
    }
}

/// Possible rectangles for a label of this width beside a point, the best first, with their CSS classes.
fn beside((x, y): (f64, f64), width: f64, away: f64) -> [(&'static str, Area); 8] {
    let (right, left, middle) = (("halo", x + away), ("halo end", x - away - width), ("halo mid", x - width / 2.0));
    let (level, above, below) = (y - 7.0, y - away - 14.0, y + away);
    [
        (right, level),
        (left, level),
        (middle, above),
        (middle, below),
        (right, above),
        (right, below),
        (left, above),
        (left, below),
    ]
    .map(|((class, left), top)| (class, Area { left, right: left + width, top, bottom: top + 14.0 }))
}

/// Borders of cells with these centers: halfway between two, and as far out at the ends.
fn borders(middles: &[f64], between: impl Fn(f64, f64) -> f64, beyond: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let [first, .., last] = middles else {
        return middles.iter().flat_map(|middle| [middle * 0.5, middle * 2.0]).collect();
    };
    let inner: Vec<f64> = middles.windows(2).map(|pair| between(pair[0], pair[1])).collect();
    let (start, end) = (beyond(*first, inner[0]), beyond(*last, inner[inner.len() - 1]));
    [&[start], &inner[..], &[end]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane() -> Plane {
        let cell = |kind| Some(Cell { label: "SD".to_owned(), kind, ..Cell::default() });
        let kind = |name: &str, color| Kind { name: name.to_owned(), color };
        Plane {
            title: "Recipe".to_owned(),
            x_label: "degree".to_owned(),
            y_label: "homophily".to_owned(),
            columns: vec![1.0, 10.0, 100.0],
            rows: vec![0.2, 0.4],
            kinds: vec![kind("any", 0), kind("none", 6)],
            cells: vec![vec![cell(0), cell(1), None], vec![cell(1), cell(0), cell(0)]],
            size: Size { width: 400.0, height: 300.0 },
            ..Plane::default()
        }
    }

    #[test]
    fn cells_lie_around_their_middles() {
        let across = borders(&[1.0, 10.0, 100.0], |a, b| (a * b).sqrt(), |edge, inner| edge * edge / inner);
        for (found, power) in across.iter().zip([-0.5, 0.5, 1.5, 2.5]) {
            assert!((found.log10() - power).abs() < 1e-12, "{across:?}");
        }
        let svg = plane().svg();
        assert_eq!(svg.matches("<title>degree ").count(), 5, "{svg}");
        assert!(svg.contains("degree 10, homophily 0.4: any") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn names_of_points_do_not_cover_each_other() {
        let mut plane = plane();
        let point = |name: &str, x, is_own| Point { name: name.to_owned(), x, y: 0.3, is_own };
        plane.points = vec![point("alpha", 10.0, false), point("beta", 10.5, false), point("your graph", 11.0, true)];
        let svg = plane.svg();
        let area = |name: &str| {
            let text = svg.split("<text class=\"").find(|text| text.contains(&format!(">{name}<"))).unwrap();
            let number = |key: &str| text.split(key).nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap();
            let (x, y, width) = (number(" x=\""), number(" y=\""), width_of(name));
            let left = match text.split('"').next().unwrap() {
                class if class.contains("end") => x - width,
                class if class.contains("mid") => x - width / 2.0,
                _ => x,
            };
            Area { left, right: left + width, top: y - 9.0, bottom: y + 3.0 }
        };
        let names = ["alpha", "beta", "your graph"];
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            assert!(!area(names[a]).covers(&area(names[b])), "{} {}: {svg}", names[a], names[b]);
        }
        assert!(svg.contains("class=\"own\"") && svg.contains("your graph: degree 11, homophily 0.3"), "{svg}");
    }

    #[test]
    fn a_point_beyond_the_plane_stands_at_its_edge() {
        let mut plane = plane();
        plane.points = vec![Point { name: "far".to_owned(), x: 1e9, y: 2.0, is_own: true }];
        let svg = plane.svg();
        assert!(svg.contains("cx=\"384\""), "{svg}");
        assert!(!Plane::default().svg().contains("NaN"), "no cells are drawn too");
    }
}
