//! Metrics of a rank as they are read: values that change all the time, and counts.

use std::fmt;

use kith_client::{
    RemoteCalls,
    remote::{HedgeCounts, RemoteCounts},
    session,
};
use kith_proto::Call;
use kith_run::phase::Phase;
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::counts::Counts;

/// Labels and a value.
type Sample<'a, T> = (Vec<(&'a str, &'a str)>, T);

/// Writes families of samples, each with the label `rank`.
struct Families<'e> {
    encoder: DescriptorEncoder<'e>,
    rank: String,
}

impl Families<'_> {
    fn counters<T: EncodeCounterValue>(&mut self, name: &str, help: &str, samples: Vec<Sample<'_, T>>) -> fmt::Result {
        self.family(
            name,
            help,
            MetricType::Counter,
            samples.into_iter().map(|(l, value)| (l, ConstCounter::new(value))),
        )
    }

    fn gauges<T: EncodeGaugeValue>(&mut self, name: &str, help: &str, samples: Vec<Sample<'_, T>>) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, samples.into_iter().map(|(l, value)| (l, ConstGauge::new(value))))
    }

    fn family<'a, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl Iterator<Item = (Vec<(&'a str, &'a str)>, M)>,
    ) -> fmt::Result {
        let mut encoder = self.encoder.encode_descriptor(name, help, None, kind)?;
        for (mut labels, metric) in samples {
            labels.insert(0, ("rank", &self.rank));
            metric.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Writes all metrics of a rank of `n_ranks`.
pub(super) fn write(encoder: DescriptorEncoder<'_>, (rank, n_ranks): (usize, usize), counts: &Counts) -> fmt::Result {
    let mut families = Families { encoder, rank: rank.to_string() };
    families.gauges("kith_ranks", "Ranks of the run.", vec![(vec![], n_ranks as u64)])?;
    let session = vec![(vec![("session", session())], 1u64)];
    families.gauges("kith_session_info", "Name of this process at sampling servers.", session)?;
    of_run(&mut families, counts)?;
    of_phases(&mut families, counts)?;
    of_heartbeats(&mut families, counts)?;
    counts.calls.as_ref().map_or(Ok(()), |calls| of_calls(&mut families, calls))
}

fn of_run(families: &mut Families<'_>, counts: &Counts) -> fmt::Result {
    // A run that resumes goes back to its checkpoint: no counters.
    families.gauges("kith_step", "Weight updates of the whole run.", vec![(vec![], counts.step)])?;
    families.gauges("kith_epoch", "Complete epochs of the whole run.", vec![(vec![], counts.epoch)])?;
    let help = "Seed nodes of all ranks that were trained on since this process started.";
    families.counters("kith_seeds", help, vec![(vec![], counts.n_seeds)])?;
    families.gauges("kith_loss", "Loss of the last step.", vec![(vec![], counts.loss)])?;
    if let Some(measured) = counts.measured {
        let parts = vec![(vec![("part", "valid")], measured.valid), (vec![("part", "test")], measured.test)];
        families.gauges("kith_metric", "Metric of the run, as last evaluated.", parts)?;
    }
    let rows = [("local", counts.rows.local), ("cached", counts.rows.cached), ("remote", counts.rows.remote)];
    let rows = rows.map(|(from, n)| (vec![("from", from)], n)).to_vec();
    families.counters("kith_rows", "Features read by this process, by where they came from.", rows)?;
    let Some((when, step)) = counts.saved else { return Ok(()) };
    let help = "Time since the last checkpoint was written; since the start of this process, if there was none.";
    families.gauges("kith_checkpoint_age_seconds", help, vec![(vec![], when.elapsed().as_secs_f64())])?;
    families.gauges("kith_checkpoint_step", "Weight updates in the last checkpoint.", vec![(vec![], step)])
}

fn of_phases(families: &mut Families<'_>, counts: &Counts) -> fmt::Result {
    let spent = |phase: Phase| (vec![("phase", phase.name())], counts.phases.of(phase) as f64 / 1e6);
    families.counters("kith_seconds", "Time of this process, by phase.", Phase::ALL.map(spent).to_vec())?;
    let Some((current, age)) = counts.current.as_ref().map(|current| current.get()) else { return Ok(()) };
    let is_current = |phase: Phase| (vec![("phase", phase.name())], u64::from(phase == current));
    families.gauges("kith_phase", "1 for the phase that this rank is in.", Phase::ALL.map(is_current).to_vec())?;
    let help = "Time since this rank entered its phase.";
    families.gauges("kith_phase_age_seconds", help, vec![(vec![], age.as_secs_f64())])
}

fn of_heartbeats(families: &mut Families<'_>, counts: &Counts) -> fmt::Result {
    let silences = counts.heartbeats.silences().into_iter();
    let silences: Vec<(String, f64)> =
        silences.map(|(peer, silence)| (peer.to_string(), silence.as_secs_f64())).collect();
    if silences.is_empty() {
        return Ok(());
    }
    let samples = silences.iter().map(|(peer, silence)| (vec![("peer", peer.as_str())], *silence)).collect();
    let help = "Time since the last sign of life of another rank: rank 0 hears all ranks, the others hear rank 0.";
    families.gauges("kith_heartbeat_age_seconds", help, samples)
}

fn of_calls(families: &mut Families<'_>, calls: &RemoteCalls) -> fmt::Result {
    let counts = Call::ALL.map(|call| (call.name(), calls.counts(call)));
    type Value = fn(&RemoteCounts) -> u64;
    let by_call: [(&str, &str, Value); 5] = [
        ("kith_remote_requests", "Attempts of calls to sampling servers.", |counts| counts.requests),
        ("kith_remote_errors", "Attempts that failed.", |counts| counts.errors),
        ("kith_remote_retries", "Attempts after one that failed.", |counts| counts.retries),
        ("kith_remote_sent_bytes", "Bytes of requests.", |counts| counts.sent_bytes),
        ("kith_remote_received_bytes", "Bytes of answers.", |counts| counts.received_bytes),
    ];
    for (name, help, value) in by_call {
        let samples = counts.iter().map(|(call, counts)| (vec![("call", *call)], value(counts)));
        families.counters(name, help, samples.collect())?;
    }
    let HedgeCounts { hedges, won, left, .. } = calls.hedges();
    let hedged = [
        ("kith_hedges", "Calls that were sent to a second server because the first was slow.", hedges),
        ("kith_hedges_won", "Of these, calls that the second server answered first.", won),
        ("kith_slow_servers", "Times that a server was left because it was slow.", left),
    ];
    hedged.iter().try_for_each(|(name, help, n)| families.counters(name, help, vec![(vec![], *n)]))
}
