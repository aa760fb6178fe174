//! Digests of slices that the GPU sampled, computed by a thread of their own while the GPU computes the slice.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
};

use kith_kernels::cuda::{Draws, GpuError};

use super::ready::Sampled;

/// Computes digests, one after the other.
#[derive(Debug)]
pub(super) struct Digester {
    /// `None` only while it is dropped.
    slices: Option<Sender<(Draws, Sampled)>>,
    digests: Receiver<Result<String, GpuError>>,
    thread: Option<JoinHandle<()>>,
}

impl Digester {
    pub(super) fn new() -> Digester {
        let (slices, given) = channel::<(Draws, Sampled)>();
        let (done, digests) = channel();
        let work = move || {
            for (draws, sampled) in given {
                if done.send(draws.fetch().map(|drawn| sampled.digest(&drawn))).is_err() {
                    return;
                }
            }
        };
        Digester { slices: Some(slices), digests, thread: Some(thread::spawn(work)) }
    }

    /// Starts with a slice that is computed.
    pub(super) fn start(&self, draws: Draws, sampled: Sampled) {
        let slices = self.slices.as_ref().expect("it is not dropped");
        slices.send((draws, sampled)).expect("the thread ends with this");
    }

    /// The digest of the slice. Until then, its draws must stay on the GPU.
    pub(super) fn finish(&self) -> Result<String, GpuError> {
        self.digests.recv().expect("the thread ends with this")
    }
}

impl Drop for Digester {
    /// Waits for the thread: it reads memory of the GPU.
    fn drop(&mut self) {
        self.slices = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
