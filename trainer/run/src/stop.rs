//! Requests to stop from outside the training loop: signals. The loop checks for one once per step and once per chunk
//! of an evaluation; ranks pass it on in exchanges that they make anyway.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU8, Ordering::SeqCst},
};

use serde::{Deserialize, Serialize};

use crate::exit_code::RETRY;

/// The signal that asks a run to stop. Of several, the last in this order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Request {
    /// SIGTERM: the machine is taken away, another try is worth it.
    Terminate,
    /// SIGINT: somebody pressed Ctrl-C.
    Interrupt,
}

impl Request {
    const ALL: [Request; 2] = [Request::Terminate, Request::Interrupt];

    /// Name of the signal.
    pub fn name(self) -> &'static str {
        match self {
            Request::Terminate => "SIGTERM",
            Request::Interrupt => "SIGINT",
        }
    }

    /// Exit code of a program that stops because of it.
    pub fn code(self) -> u8 {
        match self {
            Request::Terminate => RETRY,
            Request::Interrupt => 130,
        }
    }

    /// As one number, 0 for none.
    pub fn to_number(request: Option<Request>) -> u8 {
        request.map_or(0, |request| 1 + request as u8)
    }

    /// The request of a number; none for numbers that are no request's.
    pub fn of_number(number: u8) -> Option<Request> {
        Request::ALL.get(usize::from(number.checked_sub(1)?)).copied()
    }
}

/// Carries a request from a signal handler to loops. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// See [`Request::to_number`].
    request: AtomicU8,
    is_heeded: AtomicBool,
    /// The last step that was asked for, and its answer.
    last: Mutex<Option<(u64, Option<Request>)>>,
}

impl Stop {
    /// Asks for it. Returns whether a loop runs that will heed it.
    pub fn ask(&self, request: Request) -> bool {
        self.0.request.store(Request::to_number(Some(request)), SeqCst);
        self.0.is_heeded.load(SeqCst)
    }

    /// Loops heed requests as long as the guard lives.
    pub fn heeded(&self) -> Heeded {
        self.0.is_heeded.store(true, SeqCst);
        Heeded(self.clone())
    }

    /// The request, if there is one by now.
    pub fn request(&self) -> Option<Request> {
        Request::of_number(self.0.request.load(SeqCst))
    }

    /// The request as of a step. Runs that are computed together ask for the same step one after the other, and get the same
    /// answer.
    pub fn request_at(&self, step: u64) -> Option<Request> {
        let mut last = self.0.last.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((asked, answer)) if asked == step => answer,
            _ => {
                let answer = self.request();
                *last = Some((step, answer));
                answer
            }
        }
    }
}

/// Marks the time in which a loop runs.
#[derive(Debug)]
pub struct Heeded(Stop);

impl Drop for Heeded {
    fn drop(&mut self) {
        self.0.0.is_heeded.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_step_get_one_answer() {
        let stop = Stop::default();
        assert_eq!((stop.request_at(3), stop.request()), (None, None));
        assert!(!stop.ask(Request::Terminate), "no loop runs");
        assert_eq!((stop.request_at(3), stop.request_at(4)), (None, Some(Request::Terminate)));
        let clone = stop.clone();
        let guard = clone.heeded();
        assert!(stop.ask(Request::Interrupt));
        assert_eq!((stop.request_at(4), stop.request_at(5)), (Some(Request::Terminate), Some(Request::Interrupt)));
        drop(guard);
        assert!(!stop.ask(Request::Interrupt));
    }

    #[test]
    fn requests_have_numbers() {
        for request in [None, Some(Request::Terminate), Some(Request::Interrupt)] {
            assert_eq!(Request::of_number(Request::to_number(request)), request);
        }
        assert_eq!(Request::of_number(9), None);
        assert_eq!([Request::Terminate, Request::Interrupt].map(Request::code), [75, 130]);
    }
}
