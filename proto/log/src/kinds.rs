//! Kinds of lines, and the number of lines of each kind that are written.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

use tracing::Level;

/// The time in which lines of a kind are counted together.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// Lines of a kind that are written in this time.
pub(crate) const MAX_LINES: u32 = 5;

/// Kinds that are told apart by their reason. Beyond them, reasons of one place in the code count together.
const MAX_KINDS: usize = 256;

/// Counts of lines by kind: the place in the code, and the reason if the line has one.
#[derive(Debug)]
pub(crate) struct Kinds<P>(HashMap<(P, Option<String>), Window>);

#[derive(Debug)]
struct Window {
    began: Instant,
    n_written: u32,
    n_withheld: u64,
    level: Level,
    message: String,
}

/// Treatment of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Written,
    Withheld,
}

/// Lines of a kind that were withheld.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Withheld {
    pub(crate) level: Level,
    pub(crate) message: String,
    pub(crate) reason: Option<String>,
    pub(crate) n_lines: u64,
    /// The time in which they came.
    pub(crate) seconds: u64,
}

impl<P: Clone + Eq + Hash> Kinds<P> {
    pub(crate) fn new() -> Kinds<P> {
        Kinds(HashMap::new())
    }

    /// Counts a line.
    pub(crate) fn admit(&mut self, place: P, reason: Option<String>, line: (Level, &str), now: Instant) -> Verdict {
        let mut kind = (place, reason);
        if self.0.len() >= MAX_KINDS && !self.0.contains_key(&kind) {
            self.0.retain(|_, window| window.n_withheld > 0 || now < window.began + WINDOW);
            if self.0.len() >= MAX_KINDS {
                kind.1 = None;
            }
        }
        let window = self.0.entry(kind).or_insert_with(|| Window {
            began: now,
            n_written: 0,
            n_withheld: 0,
            level: line.0,
            message: line.1.to_owned(),
        });
        // A window with withheld lines ends when they are reported.
        if window.n_withheld == 0 && now >= window.began + WINDOW {
            (window.began, window.n_written) = (now, 0);
        }
        if window.n_written < MAX_LINES {
            window.n_written += 1;
            Verdict::Written
        } else {
            window.n_withheld += 1;
            Verdict::Withheld
        }
    }

    /// Takes the counts of all windows with withheld lines that are over, or of all such windows.
    pub(crate) fn take(&mut self, now: Instant, takes_all: bool) -> Vec<Withheld> {
        let is_due = |window: &Window| window.n_withheld > 0 && (takes_all || now >= window.began + WINDOW);
        let due = self.0.iter_mut().filter(|(_, window)| is_due(window));
        let mut taken: Vec<Withheld> = due
            .map(|((_, reason), window)| {
                let seconds = now.saturating_duration_since(window.began).as_secs().max(1);
                let n_lines = std::mem::take(&mut window.n_withheld);
                (window.began, window.n_written) = (now, 0);
                let (level, message, reason) = (window.level, window.message.clone(), reason.clone());
                Withheld { level, message, reason, n_lines, seconds }
            })
            .collect();
        taken.sort_by(|one, other| (&one.message, &one.reason).cmp(&(&other.message, &other.reason)));
        taken
    }

    /// Time at which the first window with withheld lines is over; `None` if nothing is withheld.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.0.values().filter(|window| window.n_withheld > 0).map(|window| window.began + WINDOW).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_lines_of_a_kind_are_counted() {
        let (mut kinds, start) = (Kinds::new(), Instant::now());
        let admit = |kinds: &mut Kinds<u8>, place, millis| {
            let at = start + Duration::from_millis(millis);
            kinds.admit(place, Some("tls".to_owned()), (Level::WARN, "refused"), at) == Verdict::Written
        };
        let n_written = (0..62).filter(|n| admit(&mut kinds, 1, n * 10)).count();
        assert_eq!(n_written, MAX_LINES as usize);
        assert!(admit(&mut kinds, 2, 700), "another place has lines of its own");
        assert_eq!(kinds.next_due(), Some(start + WINDOW));
        assert_eq!(kinds.take(start + Duration::from_secs(9), false), []);
        let withheld = Withheld {
            level: Level::WARN,
            message: "refused".to_owned(),
            reason: Some("tls".to_owned()),
            n_lines: 57,
            seconds: 10,
        };
        assert_eq!(kinds.take(start + WINDOW, false), [withheld]);
        assert_eq!(kinds.next_due(), None);
        // A new window has begun.
        assert!((0..5).all(|n| admit(&mut kinds, 1, 10_000 + n)) && !admit(&mut kinds, 1, 10_100));
        assert_eq!(kinds.take(start + Duration::from_secs(12), true)[0].n_lines, 1);
    }

    #[test]
    fn a_window_without_withheld_lines_ends_by_itself() {
        let (mut kinds, start) = (Kinds::new(), Instant::now());
        for second in (0..100).step_by(3) {
            let verdict = kinds.admit(1, None, (Level::INFO, "slow"), start + Duration::from_secs(second));
            assert_eq!(verdict, Verdict::Written, "{second} s");
        }
    }

    #[test]
    fn there_are_not_more_kinds_than_fit() {
        let (mut kinds, start) = (Kinds::new(), Instant::now());
        let n_written = (0..10_000)
            .filter(|n| kinds.admit(1, Some(n.to_string()), (Level::WARN, "x"), start) == Verdict::Written)
            .count();
        assert!(kinds.0.len() <= MAX_KINDS + 1, "{}", kinds.0.len());
        assert_eq!(n_written, MAX_KINDS + MAX_LINES as usize);
        // Kinds that are over make room.
        kinds.take(start + WINDOW, true);
        let later = start + WINDOW * 3;
        assert_eq!(kinds.admit(1, Some("new".to_owned()), (Level::WARN, "x"), later), Verdict::Written);
        assert_eq!(kinds.0.len(), 1);
    }
}
