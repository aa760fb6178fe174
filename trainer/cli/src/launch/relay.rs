//! Relays the output of processes: rank 0's stdout unchanged, everything else with the process's name in front.

use std::io::{self, Write};

use kith_group::launch::{attempt::Who, ended::Ended};

use super::{attempt::Audience, metrics::Metrics};

/// Relays all lines, and counts processes.
#[derive(Debug)]
pub(super) struct Relay<'a>(pub(super) &'a Metrics);

impl Audience for Relay<'_> {
    fn begun(&mut self, who: Who) {
        self.0.begun(who);
    }

    fn ended(&mut self, who: Who, ended: Ended) {
        self.0.ended(who, ended);
    }

    fn hear(&mut self, who: Who, is_answer: bool, line: &[u8]) {
        relay(who, is_answer, line);
    }
}

/// Relays a line.
pub(super) fn relay(who: Who, is_answer: bool, line: &[u8]) {
    // A closed stdout does not stop the run.
    let _ = if is_answer && who == Who::Rank(0) {
        let mut stdout = io::stdout().lock();
        stdout.write_all(line).and_then(|()| stdout.flush())
    } else {
        io::stderr().lock().write_all(&named(who, line))
    };
}

fn named(who: Who, line: &[u8]) -> Vec<u8> {
    kith_log::format().named(&who.to_string(), line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_name_in_front_and_an_end() {
        assert_eq!(named(Who::Rank(12), b"loss 3\n"), b"rank 12 | loss 3\n");
        assert_eq!(named(Who::Server(0), b"half a line"), b"server 0 | half a line\n");
        assert_eq!(named(Who::Rank(1), b"\n"), b"rank 1 | \n");
    }
}
