//! Kernel density of points in a plane, as in `scipy.stats.gaussian_kde`.

use std::f64::consts::TAU;

/// Maximum number of points with a kernel each; more points are binned to a grid.
const MAX_KERNELS: usize = 4096;
/// Grid points along each axis. A kernel of many points spans several of them, so binning causes no visible error.
const N_BINS: usize = 256;
/// Cutoff of a kernel in standard deviations: less than 1e-9 of its height.
const REACH: f64 = 6.5;

/// Density of weighted points. The kernel's covariance is that of the points, scaled by Scott's factor.
#[derive(Clone, Debug)]
pub struct Density {
    kernels: Kernels,
    /// Inverse of the kernel's covariance: xx, xy, yy.
    inverse: [f64; 3],
    /// The kernel's standard deviation along each axis.
    widths: (f64, f64),
    /// Height of a kernel of weight 1.
    height: f64,
    ends: [f64; 4],
}

/// Positions and weights of kernels.
#[derive(Clone, Debug)]
enum Kernels {
    Points(Vec<(f64, f64, f64)>),
    Grid { from: (f64, f64), step: (f64, f64), weights: Vec<f64> },
}

impl Density {
    /// Density of points, each with weight 1 or its own. `None` if points are collinear or a number is not finite.
    pub fn of(points: &[(f64, f64)], weights: Option<&[f64]>) -> Option<Density> {
        let n = points.len();
        if weights.is_some_and(|weights| weights.len() != n || weights.iter().any(|weight| *weight < 0.0)) {
            return None;
        }
        let total = weights.map_or(n as f64, |weights| weights.iter().sum());
        let weight = |place: usize| weights.map_or(1.0, |weights| weights[place]) / total;
        let sum = |of: &dyn Fn(usize, f64, f64) -> f64| -> f64 {
            points.iter().enumerate().map(|(place, (x, y))| of(place, *x, *y)).sum()
        };
        let squares = sum(&|place, _, _| weight(place).powi(2));
        let mean = (sum(&|place, x, _| weight(place) * x), sum(&|place, _, y| weight(place) * y));
        // Scott's factor for two dimensions, with the effective number of weighted points.
        let factor = (1.0 / squares).powf(-1.0 / 6.0);
        let scale = factor * factor / (1.0 - squares);
        let xx = scale * sum(&|place, x, _| weight(place) * (x - mean.0).powi(2));
        let yy = scale * sum(&|place, _, y| weight(place) * (y - mean.1).powi(2));
        let xy = scale * sum(&|place, x, y| weight(place) * (x - mean.0) * (y - mean.1));
        let determinant = xx * yy - xy * xy;
        if !(determinant.is_finite() && determinant > 1e-12 * xx * yy) {
            return None;
        }
        let ends =
            points.iter().fold([f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::NEG_INFINITY], |e, (x, y)| {
                [e[0].min(*x), e[1].max(*x), e[2].min(*y), e[3].max(*y)]
            });
        Some(Density {
            kernels: if n <= MAX_KERNELS {
                Kernels::Points(points.iter().enumerate().map(|(place, (x, y))| (*x, *y, weight(place))).collect())
            } else {
                binned(points, weight, ends)
            },
            inverse: [yy / determinant, -xy / determinant, xx / determinant],
            widths: (xx.sqrt(), yy.sqrt()),
            height: 1.0 / (TAU * determinant.sqrt()),
            ends,
        })
    }

    /// The density at a point.
    pub fn at(&self, x: f64, y: f64) -> f64 {
        let [xx, xy, yy] = self.inverse;
        let kernel = |dx: f64, dy: f64| (-0.5 * (xx * dx * dx + 2.0 * xy * dx * dy + yy * dy * dy)).exp();
        let sum: f64 = match &self.kernels {
            Kernels::Points(points) => points.iter().map(|(px, py, weight)| weight * kernel(x - px, y - py)).sum(),
            Kernels::Grid { from, step, weights } => {
                let near = |at: f64, from: f64, step: f64, width: f64| {
                    let place = |value: f64| ((value - from) / step).clamp(0.0, N_BINS as f64) as usize;
                    place(at - REACH * width)..(place(at + REACH * width) + 1).min(N_BINS)
                };
                let columns = near(x, from.0, step.0, self.widths.0);
                let of_row = |row: usize| -> f64 {
                    let dy = y - (from.1 + step.1 * row as f64);
                    let weights = &weights[row * N_BINS..][columns.clone()];
                    let places = columns.clone().zip(weights).filter(|(_, weight)| **weight > 0.0);
                    places.map(|(column, weight)| weight * kernel(x - (from.0 + step.0 * column as f64), dy)).sum()
                };
                near(y, from.1, step.1, self.widths.1).map(of_row).sum()
            }
        };
        self.height * sum
    }

    /// Bounding box outside of which the density is negligible: left, right, low, high.
    pub fn extent(&self) -> [f64; 4] {
        let [left, right, low, high] = self.ends;
        let (x, y) = (3.0 * self.widths.0, 3.0 * self.widths.1);
        [left - x, right + x, low - y, high + y]
    }
}

/// Bins points: distributes each weight bilinearly to the four grid points around it.
fn binned(points: &[(f64, f64)], weight: impl Fn(usize) -> f64, [left, right, low, high]: [f64; 4]) -> Kernels {
    let last = (N_BINS - 1) as f64;
    let step = ((right - left) / last, (high - low) / last);
    let mut weights = vec![0.0; N_BINS * N_BINS];
    for (place, (x, y)) in points.iter().enumerate() {
        let (x, y) = ((x - left) / step.0, (y - low) / step.1);
        let (column, row) = ((x as usize).min(N_BINS - 2), (y as usize).min(N_BINS - 2));
        let (across, up) = (x - column as f64, y - row as f64);
        let weight = weight(place);
        let corner = row * N_BINS + column;
        weights[corner] += weight * (1.0 - across) * (1.0 - up);
        weights[corner + 1] += weight * across * (1.0 - up);
        weights[corner + N_BINS] += weight * (1.0 - across) * up;
        weights[corner + N_BINS + 1] += weight * across * up;
    }
    Kernels::Grid { from: (left, low), step, weights }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINTS: [(f64, f64); 6] = [(0.0, 0.1), (1.0, 0.4), (2.0, 1.5), (0.5, -0.3), (1.5, 2.2), (-1.0, 0.7)];
    const PLACES: [(f64, f64); 3] = [(0.0, 0.0), (1.0, 0.8), (3.0, -1.0)];

    #[track_caller]
    fn near(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance * expected, "{found} is not {expected}");
    }

    /// Expected values: scipy.stats.gaussian_kde, without and with weights.
    #[test]
    fn densities_are_those_of_scipy() {
        let plain = Density::of(&POINTS, None).unwrap();
        let expected = [0.118_917_697_922_278_48, 0.116_741_538_150_279_57, 2.501_482_447_975_619e-6];
        PLACES.iter().zip(expected).for_each(|((x, y), expected)| near(plain.at(*x, *y), expected, 1e-12));
        let weighted = Density::of(&POINTS, Some(&[1.0, 2.0, 3.0, 1.0, 0.5, 4.0])).unwrap();
        let expected = [0.085_899_707_943_681_6, 0.099_599_188_572_810_22, 4.624_174_769_367_02e-5];
        PLACES.iter().zip(expected).for_each(|((x, y), expected)| near(weighted.at(*x, *y), expected, 1e-12));
    }

    /// The same for 100,000 points, which are binned.
    #[test]
    fn many_points_have_nearly_the_same_density() {
        let points: Vec<(f64, f64)> = (0..100_000)
            .map(|i| {
                ((f64::from(i) * 0.618_033_988_749_894_9).fract(), (f64::from(i) * 0.754_877_666_246_692_7).fract())
            })
            .map(|(u, v)| (u + 0.5 * v, v * v - u * 0.2))
            .collect();
        let density = Density::of(&points, None).unwrap();
        near(density.at(0.75, 0.2), 0.848_155_940_142_265_3, 2e-3);
        near(density.at(0.2, 0.0), 2.028_988_197_707_033, 2e-3);
        near(density.at(1.2, 0.6), 0.545_228_294_140_306_6, 2e-3);
        assert!(density.at(50.0, 50.0) < 1e-12);
    }

    #[test]
    fn what_spans_no_plane_has_no_density() {
        assert!(Density::of(&[], None).is_none());
        assert!(Density::of(&[(1.0, 2.0); 5], None).is_none());
        assert!(Density::of(&[(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)], None).is_none());
        assert!(Density::of(&[(0.0, f64::NAN), (1.0, 1.0), (2.0, 0.0)], None).is_none());
        assert!(Density::of(&POINTS, Some(&[1.0])).is_none());
    }
}
