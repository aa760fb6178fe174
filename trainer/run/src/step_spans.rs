//! Spans of a rank's steps and of their phases, for a collector.

use tracing::{Span, info_span};

use crate::phase::Phase;

/// The step and the phase that a rank is in. A span ends when the next begins.
#[derive(Debug)]
pub(crate) struct StepSpans {
    step: Option<u64>,
    of_step: Span,
    of_phase: Span,
}

impl StepSpans {
    /// Spans of a rank that has begun no step.
    pub(crate) fn new() -> StepSpans {
        StepSpans { step: None, of_step: Span::none(), of_phase: Span::none() }
    }

    /// Begins the span of a phase, and that of its step with its first phase.
    pub(crate) fn enter(&mut self, step: u64, phase: Phase) {
        self.of_phase = Span::none();
        if self.step != Some(step) {
            self.step = Some(step);
            self.of_step = info_span!(target: "kith_trainer", parent: None, "step", step);
        }
        self.of_phase = info_span!(target: "kith_trainer", parent: &self.of_step, "phase", otel.name = phase.name());
    }
}
