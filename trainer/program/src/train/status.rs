//! The status line of an epoch, and the warning about a loss that grows.

use kith_run::{measured::Metric, report::StepRecord};

pub(super) fn how_it_goes(record: &StepRecord, metric: Metric) -> String {
    let shown = |value: f64| metric.show(value);
    let measured = record.measured.map(|m| format!(", valid {}, test {}", shown(m.valid), shown(m.test)));
    format!("loss {:.4}{}", record.loss, measured.unwrap_or_default())
}

/// A note about slices that do not divide evenly among the ranks by now.
pub(super) fn uneven(record: &StepRecord) -> Option<String> {
    let (least, most) = (record.slices.iter().min()?, record.slices.iter().max()?);
    let counts: Vec<String> = record.slices.iter().map(ToString::to_string).collect();
    (most - least > 1).then(|| {
        format!(
            "ranks differ in speed: from step {} on, they compute {} slices (the key `slices` of steps.jsonl has all \
             divisions)",
            record.step,
            counts.join(", ")
        )
    })
}

/// A loss that is this many times the one before grows.
const GROWS: f64 = 10.0;

/// Watches the losses of a run.
#[derive(Debug)]
pub(super) struct LossWatch {
    learning_rate: f64,
    /// Epoch, sum of its losses so far, and their number.
    epoch: Option<(u64, f64, u64)>,
    /// Mean loss of the epoch before.
    before: Option<f64>,
    has_warned: bool,
}

impl LossWatch {
    pub(super) fn new(learning_rate: f64) -> LossWatch {
        LossWatch { learning_rate, epoch: None, before: None, has_warned: false }
    }

    /// Records a step. With the first step of the next epoch, a warning, once, if the mean loss of an epoch is ten times that of
    /// the epoch before.
    pub(super) fn hear(&mut self, record: &StepRecord) -> Option<String> {
        let (epoch, sum, n) = match self.epoch {
            Some((epoch, sum, n)) if epoch == record.epoch => {
                self.epoch = Some((epoch, sum + record.loss, n + 1));
                return None;
            }
            before => {
                self.epoch = Some((record.epoch, record.loss, 1));
                before?
            }
        };
        let now = sum / n as f64;
        let before = self.before.replace(now)?;
        if self.has_warned || before <= 0.0 || now < GROWS * before {
            return None;
        }
        self.has_warned = true;
        let smaller = tenth(self.learning_rate);
        Some(format!(
            "the loss grew from {before:.3} to {now:.3} in epoch {}: try a smaller learning rate (--lr {smaller}), a warmup \
             (--set schedule.warmup=5) or --set optimizer.clip_norm=1",
            epoch + 1
        ))
    }
}

/// A tenth of a learning rate, with few digits.
pub(super) fn tenth(rate: f64) -> f64 {
    format!("{:.3e}", rate / 10.0).parse().unwrap_or(rate / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(losses: &[(u64, f64)]) -> Vec<String> {
        let mut watch = LossWatch::new(0.05);
        let record = |(epoch, loss): &(u64, f64)| StepRecord { loss: *loss, ..StepRecord::new(0, *epoch) };
        losses.iter().filter_map(|step| watch.hear(&record(step))).collect()
    }

    #[test]
    fn a_division_that_is_not_even_is_noted() {
        let noted = |slices: &[usize]| uneven(&StepRecord { slices: slices.to_vec(), ..StepRecord::new(128, 0) });
        assert_eq!([noted(&[]), noted(&[3, 2, 2])], [None, None]);
        let expected = "ranks differ in speed: from step 128 on, they compute 1, 3, 3 slices (the key `slices` of steps.jsonl \
                        has all divisions)";
        assert_eq!(noted(&[1, 3, 3]).unwrap(), expected);
    }

    #[test]
    fn a_loss_that_grows_tenfold_is_a_warning_once() {
        assert!(warnings(&[(0, 1.6), (1, 15.9), (2, 30.0), (3, 4.0)]).is_empty());
        assert!(warnings(&[(0, 1.0), (1, 99.0), (1, 0.1), (1, 0.1), (1, 0.1), (1, 0.1), (2, 1.0)]).len() == 1);
        assert!(warnings(&[(0, 10.0), (0, 10.0), (1, 99.0), (1, 0.1), (2, 1.0)]).is_empty(), "means of epochs");
        assert_eq!([0.003, 0.05, 1e-4].map(tenth), [0.0003, 0.005, 1e-5]);
        let found = warnings(&[(0, 1.0), (0, 3.0), (1, 1.0), (1, 99.0), (2, 1e6), (3, 1e9)]);
        let expected = "the loss grew from 2.000 to 50.000 in epoch 2: try a smaller learning rate (--lr 0.005), a warmup (--set \
                        schedule.warmup=5) or --set optimizer.clip_norm=1";
        assert_eq!(found, [expected]);
    }
}
