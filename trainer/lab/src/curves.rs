//! Curves of means with standard deviations, shared by several experiments.

use kith_report::{
    Axis,
    plot::{
        Size,
        lines::{Lines, Reach, Series},
    },
    statistics::Spread,
};

use crate::findings::Figure;

/// One curve: its name, and the spread at each value.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, Spread)>,
}

/// Figure of curves with a band of one standard deviation.
pub(crate) fn figure(title: String, x: Axis, y: Axis, curves: &[Curve]) -> Figure {
    let series = curves.iter().map(|curve| Series {
        name: curve.name.clone(),
        points: curve.points.iter().map(|(x, spread)| (*x, spread.mean)).collect(),
        reach: curve.points.iter().map(|(_, spread)| (spread.mean - spread.std, spread.mean + spread.std)).collect(),
        shown: Reach::Bars,
        ..Series::default()
    });
    let lines = Lines {
        title: title.clone(),
        description: format!("{}, mean and standard deviation over runs.", y.label),
        x,
        y,
        series: series.collect(),
        references: Vec::new(),
        size: Size::HALF,
    };
    Figure { title, svg: lines.svg() }
}
