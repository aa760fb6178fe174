//! The status line of an epoch.

use kith_run::report::StepRecord;

pub(super) fn how_it_goes(record: &StepRecord) -> String {
    let measured = record.measured.map(|m| format!(", valid {:.2}, test {:.2}", 100.0 * m.valid, 100.0 * m.test));
    format!("loss {:.4}{}", record.loss, measured.unwrap_or_default())
}
