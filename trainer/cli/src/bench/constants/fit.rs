//! Fits prices to measured times: time = sum of price × work, no price below 0.

/// One measured time, and the work that it was spent on.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) seconds: f64,
    /// Time that its error is relative to: the time itself, or that of a whole step if this is a part, which noise may turn negative.
    pub(super) scale: f64,
    pub(super) work: Vec<f64>,
}

impl Sample {
    /// A whole time.
    pub(super) fn of(seconds: f64, work: Vec<f64>) -> Sample {
        Sample { seconds, scale: seconds, work }
    }
}

/// Prices with the least squared relative errors, none of them negative. Tries every set of prices that may differ from 0: there are
/// at most ten.
pub(super) fn fit(samples: &[Sample], n_prices: usize) -> Vec<f64> {
    let rows: Vec<Row> = samples.iter().filter(|sample| sample.scale > 0.0).map(Row::of).collect();
    let error = |prices: &[f64]| -> f64 {
        let of = |row: &Row| row.time - row.work.iter().zip(prices).map(|(work, price)| work * price).sum::<f64>();
        rows.iter().map(|row| of(row).powi(2)).sum()
    };
    let mut best = vec![0.0; n_prices];
    for set in 1..1_usize << n_prices {
        let own: Vec<usize> = (0..n_prices).filter(|price| set >> price & 1 == 1).collect();
        let Some(solved) = least_squares(&rows, &own) else { continue };
        if solved.iter().any(|price| *price < 0.0) {
            continue;
        }
        let mut prices = vec![0.0; n_prices];
        own.iter().zip(solved).for_each(|(place, price)| prices[*place] = price);
        // Fewer prices win over more that explain no more.
        if error(&prices) < error(&best) - 1e-9 {
            best = prices;
        }
    }
    best
}

/// Largest relative error of fitted prices.
pub(super) fn largest_error(samples: &[Sample], prices: &[f64]) -> f64 {
    let of = |sample: &Sample| {
        let fitted: f64 = sample.work.iter().zip(prices).map(|(work, price)| work * price).sum();
        ((fitted - sample.seconds) / sample.scale).abs()
    };
    samples.iter().filter(|sample| sample.scale > 0.0).map(of).fold(0.0, f64::max)
}

/// A sample whose time and work are divided by its scale.
struct Row {
    time: f64,
    work: Vec<f64>,
}

impl Row {
    fn of(Sample { seconds, scale, work }: &Sample) -> Row {
        Row { time: seconds / scale, work: work.iter().map(|work| work / scale).collect() }
    }
}

/// Solves the normal equations of some columns; `None` if columns depend on each other.
fn least_squares(rows: &[Row], columns: &[usize]) -> Option<Vec<f64>> {
    // Scaled to length 1, so that units do not matter.
    let scales: Vec<f64> =
        columns.iter().map(|column| rows.iter().map(|row| row.work[*column].powi(2)).sum::<f64>().sqrt()).collect();
    if scales.contains(&0.0) || columns.len() > rows.len() {
        return None;
    }
    let n = columns.len();
    let at = |row: &Row, place: usize| row.work[columns[place]] / scales[place];
    let mut system: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let mut line: Vec<f64> = (0..n).map(|j| rows.iter().map(|row| at(row, i) * at(row, j)).sum()).collect();
            line.push(rows.iter().map(|row| at(row, i) * row.time).sum());
            line
        })
        .collect();
    for i in 0..n {
        let pivot = (i..n).max_by(|a, b| system[*a][i].abs().total_cmp(&system[*b][i].abs()))?;
        system.swap(i, pivot);
        if system[i][i].abs() < 1e-9 {
            return None;
        }
        let line = system[i].clone();
        for (_, other) in system.iter_mut().enumerate().filter(|(place, _)| *place != i) {
            let factor = other[i] / line[i];
            other.iter_mut().zip(&line).for_each(|(value, pivot)| *value -= factor * pivot);
        }
    }
    Some((0..n).map(|i| system[i][n] / system[i][i] / scales[i]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(prices: &[f64], works: &[&[f64]]) -> Vec<Sample> {
        let seconds = |work: &[f64]| work.iter().zip(prices).map(|(work, price)| work * price).sum();
        works.iter().map(|work| Sample::of(seconds(work), work.to_vec())).collect()
    }

    const WORKS: [&[f64]; 4] = [&[1.0, 1e4, 2e6], &[1.0, 3e4, 1e6], &[1.0, 2e4, 9e6], &[1.0, 9e4, 3e6]];

    #[test]
    fn prices_are_found_again() {
        let prices = [2e-3, 3e-7, 4e-9];
        let samples = samples(&prices, &WORKS);
        let found = fit(&samples, 3);
        assert!(found.iter().zip(prices).all(|(found, price)| (found / price - 1.0).abs() < 1e-6), "{found:?}");
        assert!(largest_error(&samples, &found) < 1e-6);
        assert!((largest_error(&samples, &[4e-3, 6e-7, 8e-9]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn no_price_is_negative() {
        let mut samples = samples(&[1e-3, 2e-7, 0.0], &WORKS);
        samples[0].seconds *= 1.1;
        let found = fit(&samples, 3);
        assert!(found.iter().all(|price| *price >= 0.0), "{found:?}");
        assert!(largest_error(&samples, &found) < 0.15, "{found:?}");
    }

    #[test]
    fn work_that_cannot_be_told_apart_is_explained_all_the_same() {
        let works: [&[f64]; 2] = [&[100.0, 400.0], &[200.0, 800.0]];
        let samples = samples(&[1e-3, 1e-3], &works);
        assert!(largest_error(&samples, &fit(&samples, 2)) < 1e-9);
        assert_eq!(fit(&[], 2), [0.0, 0.0]);
    }

    #[test]
    fn a_part_below_zero_does_not_outweigh_the_others() {
        // The waits of two kinds of ranks: noise hides that of the first.
        let sample = |seconds: f64, work: &[f64]| Sample { seconds, scale: 0.04, work: work.to_vec() };
        let samples = [sample(-1e-3, &[0.03, 0.0]), sample(1e-2, &[0.0, 0.03]), sample(1.1e-2, &[0.0, 0.03])];
        let found = fit(&samples, 2);
        assert!(found[0] == 0.0 && (found[1] - 0.35).abs() < 1e-9, "{found:?}");
    }
}
