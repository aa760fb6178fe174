//! Frame of all plots: title, legend, axes, grid.

use super::{
    Size,
    drawing::{Drawing, width_of},
};
use crate::{
    axis::{Axis, Drawn, Range},
    style::color,
};

/// Pixels from the top to the middle of the title.
const TITLE: f64 = 20.0;
/// Height of a row of the legend.
const LEGEND_ROW: f64 = 20.0;
/// Length of a sample in the legend, and the gap around it.
const SAMPLE: f64 = 18.0;
const GAP: f64 = 6.0;

/// Sample in front of a legend's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    Line,
    Dashed,
    Block,
    Cell,
}

/// One entry of a legend.
pub(super) struct Entry<'a> {
    pub(super) sample: Sample,
    pub(super) color: usize,
    pub(super) name: &'a str,
}

/// A drawing with an area for data.
pub(super) struct Frame {
    pub(super) drawing: Drawing,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Frame {
    /// Draws title and legend, and reserves the pixels `left` and `bottom` for axes.
    pub(super) fn new(size: Size, title: &str, legend: &[Entry<'_>], left: f64, bottom: f64) -> Frame {
        let mut drawing = Drawing::new(size);
        drawing.text("title", 8.0, TITLE, title);
        let mut frame =
            Frame { drawing, left, right: size.width - 16.0, top: TITLE + 16.0, bottom: size.height - bottom };
        frame.draw_legend(legend, size.width);
        frame
    }

    fn draw_legend(&mut self, legend: &[Entry<'_>], width: f64) {
        if legend.is_empty() {
            return;
        }
        let (mut x, mut y) = (8.0, TITLE + 22.0);
        for Entry { sample, color: series, name } in legend {
            let needed = SAMPLE + GAP + width_of(name) + 14.0;
            if x > 8.0 && x + needed > width {
                (x, y) = (8.0, y + LEGEND_ROW);
            }
            self.drawing.enter(&color(*series));
            let end = x + SAMPLE;
            match sample {
                Sample::Line => self.drawing.line("line", (x, y), (end, y)),
                Sample::Dashed => self.drawing.line("line dashed", (x, y), (end, y)),
                Sample::Block => self.drawing.rect("block", (x + 3.0, y - 6.0), 12.0, 12.0, None),
                Sample::Cell => self.drawing.rect("cell", (x + 2.0, y - 7.0), 14.0, 14.0, None),
            }
            self.drawing.leave();
            self.drawing.text("", end + GAP, y + 4.0, name);
            x += needed;
        }
        self.top = y + 18.0;
    }

    /// Draws the horizontal axis and returns its mapping to pixels.
    pub(super) fn x_axis(&mut self, axis: &Axis, range: Range, has_grid: bool) -> Drawn {
        let drawn = range.drawn(self.left, self.right);
        let n = ((self.right - self.left) / 80.0) as usize;
        for (x, name) in drawn.ticks(n.max(2)) {
            if has_grid {
                self.drawing.line("grid", (x, self.top), (x, self.bottom));
            }
            self.drawing.line("axis", (x, self.bottom), (x, self.bottom + 4.0));
            self.drawing.text("tick mid", x, self.bottom + 17.0, &name);
        }
        self.x_label(&axis.label);
        drawn
    }

    /// Draws the horizontal line and its label.
    pub(super) fn x_label(&mut self, label: &str) {
        self.drawing.line("axis", (self.left, self.bottom), (self.right, self.bottom));
        self.drawing.text("label mid", (self.left + self.right) / 2.0, self.bottom + 35.0, label);
    }

    /// Draws the vertical axis and returns its mapping to pixels.
    pub(super) fn y_axis(&mut self, axis: &Axis, range: Range) -> Drawn {
        let drawn = range.drawn(self.bottom, self.top);
        for (y, name) in drawn.ticks(n_ticks_up(self.bottom - self.top)) {
            self.drawing.line("grid", (self.left, y), (self.right, y));
            self.drawing.text("tick end", self.left - 7.0, y + 4.0, &name);
        }
        self.y_label(&axis.label);
        drawn
    }

    /// Draws the label of the vertical axis.
    pub(super) fn y_label(&mut self, label: &str) {
        self.drawing.upward("label mid", 15.0, (self.top + self.bottom) / 2.0, label);
    }
}

/// Width of a vertical axis: its label and its widest tick.
pub(super) fn left_of(range: &Range, height: f64) -> f64 {
    let ticks = range.ticks(n_ticks_up(height));
    30.0 + ticks.iter().map(|(_, name)| width_of(name)).fold(0.0, f64::max).max(14.0)
}

fn n_ticks_up(height: f64) -> usize {
    ((height / 36.0) as usize).max(2)
}
