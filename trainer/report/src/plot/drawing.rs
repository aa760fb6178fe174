//! Writes SVG elements.

use std::fmt::{Display, Write};

use super::Size;
use crate::{escape::Escaped, number::px};

/// Average width of a letter at a font size of 12 pixels.
const LETTER: f64 = 6.9;

/// Approximate width of a text.
pub(crate) fn width_of(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// An SVG under construction.
pub(crate) struct Drawing {
    size: Size,
    body: String,
}

impl Drawing {
    pub(crate) fn new(size: Size) -> Drawing {
        Drawing { size, body: String::new() }
    }

    /// Appends formatted text.
    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        self.body.write_fmt(element).expect("a string grows");
    }

    /// A text; the classes `mid` and `end` set its anchor.
    pub(crate) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        self.add(format_args!("<text class=\"{class}\" x=\"{}\" y=\"{}\">{}</text>", px(x), px(y), Escaped(text)));
    }

    /// A vertical text, read from bottom to top.
    pub(crate) fn upward(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let (x, y) = (px(x), px(y));
        let turned = format!("translate({x} {y}) rotate(-90)");
        self.add(format_args!("<text class=\"{class}\" transform=\"{turned}\">{}</text>", Escaped(text)));
    }

    /// A straight line.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let path = format!("M{} {}L{} {}", px(from.0), px(from.1), px(to.0), px(to.1));
        self.path(class, &path, None);
    }

    /// A path with an optional tooltip.
    pub(crate) fn path(&mut self, class: &str, path: &str, tip: Option<&str>) {
        self.element(format_args!("path class=\"{class}\" d=\"{path}\""), "path", tip);
    }

    /// A rectangle.
    pub(crate) fn rect(&mut self, class: &str, corner: (f64, f64), width: f64, height: f64, tip: Option<&str>) {
        let (x, y, width, height) = (px(corner.0), px(corner.1), px(width.max(0.0)), px(height.max(0.0)));
        let place = format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"");
        self.element(format_args!("rect class=\"{class}\" {place}"), "rect", tip);
    }

    /// A dot.
    pub(crate) fn dot(&mut self, class: &str, center: (f64, f64), radius: f64, tip: Option<&str>) {
        let place = format!("cx=\"{}\" cy=\"{}\" r=\"{}\"", px(center.0), px(center.1), px(radius));
        self.element(format_args!("circle class=\"{class}\" {place}"), "circle", tip);
    }

    fn element(&mut self, open: impl Display, name: &str, tip: Option<&str>) {
        match tip {
            Some(tip) => self.add(format_args!("<{open}><title>{}</title></{name}>", Escaped(tip))),
            None => self.add(format_args!("<{open}/>")),
        }
    }

    /// Opens a group with a class, closed by [`Drawing::leave`].
    pub(crate) fn enter(&mut self, class: &str) {
        self.add(format_args!("<g class=\"{class}\">"));
    }

    /// Closes the group of [`Drawing::enter`].
    pub(crate) fn leave(&mut self) {
        self.body.push_str("</g>");
    }

    /// The whole SVG, with title and description for screen readers.
    pub(crate) fn finish(self, title: &str, description: &str) -> String {
        let Size { width, height } = self.size;
        let title = Escaped(title);
        format!(
            "<svg class=\"plot\" viewBox=\"0 0 {} {}\" style=\"min-width:{}px;max-width:{}px\" role=\"img\" \
             aria-label=\"{title}\"><title>{title}</title><desc>{}</desc>{}</svg>",
            px(width),
            px(height),
            px(width * 0.6),
            px(width * 1.2),
            Escaped(description),
            self.body
        )
    }
}

/// A path through points; points that are not finite interrupt it.
pub(crate) fn path_through(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    let mut is_drawing = false;
    for (x, y) in points {
        if !(x.is_finite() && y.is_finite()) {
            is_drawing = false;
            continue;
        }
        path.push(if is_drawing { 'L' } else { 'M' });
        path.push_str(&format!("{} {}", px(x), px(y)));
        is_drawing = true;
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_say_what_they_show() {
        let mut drawing = Drawing::new(Size { width: 10.0, height: 5.0 });
        drawing.enter("c1");
        drawing.dot("mark", (1.0, 2.0), 3.0, Some("a < b"));
        drawing.leave();
        let expected = "<svg class=\"plot\" viewBox=\"0 0 10 5\" style=\"min-width:6px;max-width:12px\" role=\"img\" \
                        aria-label=\"T&amp;C\"><title>T&amp;C</title><desc>words</desc>\
                        <g class=\"c1\"><circle class=\"mark\" cx=\"1\" cy=\"2\" r=\"3\">\
                        <title>a &lt; b</title></circle></g></svg>";
        assert_eq!(drawing.finish("T&C", "words"), expected);
    }

    #[test]
    fn paths_are_cut_where_there_is_nothing() {
        let points = [(0.0, 0.0), (1.0, 1.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 0.25)];
        assert_eq!(path_through(points), "M0 0L1 1M3 1L4 0.2");
    }
}
