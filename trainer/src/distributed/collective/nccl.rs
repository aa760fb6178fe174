//! Ranks on GPUs: NCCL transfers tensors and the records of steps, the ring of the rendezvous all other bytes. One of the modules with `unsafe`:
//! NCCL is called with the addresses of tensors.
//!
//! The communicator is non-blocking, so that no call waits inside NCCL: every wait is here, checks the board, NCCL's
//! own errors and the clock, and aborts the communicator if it must.
#![allow(unsafe_code)]

mod library;
mod posts;

use std::{
    collections::VecDeque,
    ffi::{c_int, c_void},
    fmt,
    ptr::null_mut,
    sync::Arc,
    time::{Duration, Instant},
};

use cudarc::{
    driver::{CudaContext, CudaStream, DevicePtrMut, DriverError},
    nccl::{
        result::{self, NcclError, NcclStatus},
        sys,
    },
};
use kith_kernels::cuda::DeviceNumbers;
use kith_run::exit_code::RETRY;
use tch::{Device, Kind, Tensor, no_grad};

pub(crate) use self::library::{gpu_identity, version};
use self::{library::config, posts::Post};
use super::{Collective, Posted, Ring};
use crate::{distributed::world::WorldError, error::device_code};

/// By this variable NCCL takes ranks that share a device for ranks of several hosts; otherwise it refuses them.
const HOST_ID: &str = "NCCL_HOSTID";

/// A wait spins for `IMPATIENCE`, then polls every `NAP`: an all-reduce takes microseconds, waiting for a slower rank
/// takes longer.
const IMPATIENCE: Duration = Duration::from_micros(300);
const NAP: Duration = Duration::from_micros(50);

/// One rank's communicator. It stays on the thread that made it.
pub(crate) struct Nccl {
    comm: sys::ncclComm_t,
    stream: Arc<CudaStream>,
    /// The stream on which libtorch computes.
    compute: Arc<CudaStream>,
    ring: Ring,
    n_ranks: usize,
    /// By NCCL, so far.
    sent_bytes: u64,
    /// Bytes that are shared now, in order, and memory of such.
    posted: VecDeque<Post>,
    spare: Vec<Post>,
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nccl").field("ring", &self.ring).finish_non_exhaustive()
    }
}

impl Nccl {
    /// Makes a communicator of all ranks of a ring, each with a device of its own number, which it may share.
    pub(crate) fn new(mut ring: Ring, device: usize, shares_device: bool) -> Result<Nccl, WorldError> {
        version().map_err(WorldError::Refused)?;
        if shares_device && std::env::var_os(HOST_ID).is_none() {
            // SAFETY: nothing of this process reads the environment now but NCCL, which this thread calls later: other
            // threads keep lines and wait for work.
            unsafe { std::env::set_var(HOST_ID, format!("kith-rank-{}", ring.rank())) };
        }
        let context = CudaContext::new(device).map_err(of_driver)?;
        let (compute, stream) = (context.default_stream(), context.new_stream().map_err(of_driver)?);
        let mut id = match ring.rank() {
            0 => result::get_uniqueid().map_err(of_nccl)?.internal.map(|byte| byte as u8).to_vec(),
            _ => Vec::new(),
        };
        ring.broadcast(&mut id)?;
        let Ok(id) = <[u8; 128]>::try_from(id) else {
            return Err(WorldError::OutOfStep("rank 0 told no identity of a communicator".to_owned()));
        };
        let id = sys::ncclUniqueId { internal: id.map(|byte| byte as _) };
        let (rank, n_ranks) = (ring.rank(), ring.n_ranks());
        let mut config = config();
        let mut comm = null_mut();
        // SAFETY: all pointers are to locals that outlive the call; NCCL copies what it needs of them.
        let begun =
            unsafe { result::comm_init_rank_config(&mut comm, n_ranks as c_int, id, rank as c_int, &mut config) };
        let (posted, spare) = (VecDeque::new(), Vec::new());
        let mut nccl = Nccl { comm, stream, compute, ring, n_ranks, sent_bytes: 0, posted, spare };
        nccl.settle(begun, "joining")?;
        Ok(nccl)
    }

    /// Runs a collective on tensors after libtorch's pending work, and waits for its end.
    fn run(
        &mut self,
        what: &str,
        start: impl FnOnce(sys::ncclComm_t, sys::cudaStream_t) -> Result<NcclStatus, NcclError>,
    ) -> Result<(), WorldError> {
        self.ring.board().enter_collective();
        self.stream.join(&self.compute).map_err(of_driver)?;
        let begun = start(self.comm, self.stream.cu_stream().cast());
        self.settle(begun, what)?;
        let done = self.stream.record_event(None).map_err(of_driver)?;
        self.wait(what, |nccl| {
            nccl.check_comm(what)?;
            Ok(done.is_complete())
        })
    }

    /// Waits until a call that was begun has been taken.
    fn settle(&mut self, begun: Result<NcclStatus, NcclError>, what: &str) -> Result<(), WorldError> {
        begun.map_err(|error| self.failed(what, error))?;
        self.wait(what, |nccl| nccl.check_comm(what))
    }

    /// True if the communicator has nothing pending; its errors are errors of all ranks.
    fn check_comm(&mut self, what: &str) -> Result<bool, WorldError> {
        let mut state = sys::ncclResult_t::ncclSuccess;
        // SAFETY: the communicator is alive: it is only aborted or destroyed when nobody asks any more.
        let asked = unsafe { sys::ncclCommGetAsyncError(self.comm, &mut state) };
        asked.result().and_then(|_| state.result()).map_err(|error| self.failed(what, error))?;
        Ok(state == sys::ncclResult_t::ncclSuccess)
    }

    /// Looks again and again, until a deadline, or until the others must stop.
    fn wait(
        &mut self,
        what: &str,
        mut is_over: impl FnMut(&mut Nccl) -> Result<bool, WorldError>,
    ) -> Result<(), WorldError> {
        let begun = Instant::now();
        while !is_over(self)? {
            let waited = begun.elapsed();
            if let Some(error) = self.ring.why_stop() {
                self.abort();
                return Err(error);
            }
            if waited > self.ring.limit() {
                self.abort();
                return Err(self.ring.too_late_in(&format!("NCCL's {what}")));
            }
            if waited > IMPATIENCE {
                std::thread::sleep(NAP);
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    /// NCCL sees a lost rank as an error of its own: who it was, the board will know in a moment.
    fn failed(&mut self, what: &str, error: NcclError) -> WorldError {
        self.abort();
        self.ring.failed_in(&format!("NCCL's {what}"), &format!("{:?}", error.0))
    }

    /// Aborts the communicator. Pending operations are discarded; no rank is waited for.
    fn abort(&mut self) {
        let comm = std::mem::replace(&mut self.comm, null_mut());
        if !comm.is_null() {
            // SAFETY: the communicator is alive, and nobody has it from now on.
            let _ = unsafe { result::comm_abort(comm) };
        }
    }

    /// Starts a collective on numbers of a GPU's own kernels, in the stream that computes them.
    fn start_on_gpu(
        &mut self,
        what: &str,
        values: &DeviceNumbers,
        start: impl FnOnce(sys::ncclComm_t, sys::cudaStream_t) -> Result<NcclStatus, NcclError>,
    ) -> Result<(), WorldError> {
        let (false, Some(stream)) = (self.comm.is_null(), values.stream()) else {
            return Err(WorldError::OutOfStep("numbers of a GPU travel by NCCL, and none after an error".to_owned()));
        };
        self.ring.board().enter_collective();
        let begun = start(self.comm, stream as sys::cudaStream_t);
        self.settle(begun, what)
    }

    /// The values side by side, if they can travel at all.
    fn checked(&self, values: &Tensor) -> Result<Tensor, WorldError> {
        if self.comm.is_null() || values.kind() != Kind::Float {
            let sentence = "only floats travel by NCCL, and none after an error";
            return Err(WorldError::OutOfStep(sentence.to_owned()));
        }
        Ok(values.f_contiguous()?)
    }

    /// Runs a collective on values of this process, which travel from memory of the device and come back to it: `n_rows` times
    /// as many.
    fn run_staged(
        &mut self,
        what: &str,
        values: &Tensor,
        n_rows: usize,
        start: impl FnOnce(Staged, sys::ncclComm_t, sys::cudaStream_t) -> Result<NcclStatus, NcclError>,
    ) -> Result<Tensor, WorldError> {
        let values: Vec<f32> = values.f_view([-1])?.try_into()?;
        let stream = Arc::clone(&self.stream);
        let mut from = stream.clone_htod(&values).map_err(of_driver)?;
        let mut to = stream.alloc_zeros::<f32>(n_rows * values.len()).map_err(of_driver)?;
        let staged = Staged { from: from.device_ptr_mut(&stream).0, to: to.device_ptr_mut(&stream).0 };
        self.run(what, |comm, stream| start(staged, comm, stream))?;
        let found = stream.clone_dtoh(&to).map_err(of_driver)?;
        drop(from);
        Ok(Tensor::f_from_slice(&found)?)
    }
}

/// Device addresses of values of this process.
#[derive(Clone, Copy)]
struct Staged {
    from: u64,
    to: u64,
}

impl Collective for Nccl {
    fn all_reduce(&mut self, values: &mut Tensor) -> Result<(), WorldError> {
        let here = self.checked(values)?;
        let (data, n) = (here.data_ptr(), here.numel());
        if n == 0 {
            return Ok(());
        }
        const WHAT: &str = "all-reduce";
        let (float, sum) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
        if here.device() == Device::Cpu {
            let reduced = self.run_staged(WHAT, &here, 1, |Staged { from, to }, comm, stream| {
                // SAFETY: `n` floats of two arrays that are alive until the call has ended.
                unsafe { result::all_reduce(from as *const c_void, to as *mut c_void, n, float, sum, comm, stream) }
            })?;
            no_grad(|| values.f_copy_(&reduced.f_view_as(values)?))?;
        } else {
            self.run(WHAT, |comm, stream| {
                // SAFETY: `n` floats of a tensor that is alive until the call has ended; in place is allowed.
                unsafe { result::all_reduce(data, data, n, float, sum, comm, stream) }
            })?;
        }
        self.sent_bytes += 2 * (self.n_ranks as u64 - 1) * 4 * n as u64 / self.n_ranks as u64;
        if here.device() != Device::Cpu && here.data_ptr() != values.data_ptr() {
            no_grad(|| values.f_copy_(&here))?;
        }
        Ok(())
    }

    fn all_gather(&mut self, own: &Tensor) -> Result<Tensor, WorldError> {
        let own = self.checked(own)?;
        let n = own.numel();
        let float = sys::ncclDataType_t::ncclFloat32;
        if own.device() == Device::Cpu && n > 0 {
            let rows = self.run_staged("all-gather", &own, self.n_ranks, |Staged { from, to }, comm, stream| {
                // SAFETY: `n` floats of one array, `n_ranks · n` of another, both alive until the call has ended.
                unsafe { result::all_gather(from as *const c_void, to as *mut c_void, n, float, comm, stream) }
            })?;
            self.sent_bytes += (self.n_ranks as u64 - 1) * 4 * n as u64;
            return Ok(rows.f_view([self.n_ranks as i64, n as i64])?);
        }
        let rows = Tensor::f_empty([self.n_ranks as i64, n as i64], (Kind::Float, own.device()))?;
        if n == 0 {
            return Ok(rows);
        }
        let (from, to) = (own.data_ptr(), rows.data_ptr());
        self.run("all-gather", |comm, stream| {
            // SAFETY: `n` floats of one tensor, `n_ranks · n` of another, both alive until the call has ended.
            unsafe { result::all_gather(from, to, n, float, comm, stream) }
        })?;
        self.sent_bytes += (self.n_ranks as u64 - 1) * 4 * n as u64;
        Ok(rows)
    }

    fn share(&mut self, own: &[u8]) -> Result<Vec<Vec<u8>>, WorldError> {
        self.ring.share(own)
    }

    fn all_to_all(&mut self, own: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, WorldError> {
        self.ring.all_to_all(own)
    }

    fn broadcast(&mut self, bytes: &mut Vec<u8>) -> Result<(), WorldError> {
        self.ring.broadcast(bytes)
    }

    fn barrier(&mut self) -> Result<(), WorldError> {
        self.ring.barrier()
    }

    fn all_reduce_on_gpu(&mut self, values: &DeviceNumbers) -> Result<(), WorldError> {
        let (data, n) = (values.address(), values.len());
        let (float, sum) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclSum);
        self.start_on_gpu("all-reduce", values, |comm, stream| {
            // SAFETY: `n` floats of an array that its program keeps; in place is allowed.
            unsafe { result::all_reduce(data as *const c_void, data as *mut c_void, n, float, sum, comm, stream) }
        })?;
        self.sent_bytes += 2 * (self.n_ranks as u64 - 1) * 4 * n as u64 / self.n_ranks as u64;
        Ok(())
    }

    fn all_gather_on_gpu(&mut self, own: &DeviceNumbers, all: &DeviceNumbers) -> Result<(), WorldError> {
        let (from, to, n) = (own.address(), all.address(), own.len());
        assert_eq!(all.len(), self.n_ranks * n, "room for all ranks");
        let float = sys::ncclDataType_t::ncclFloat32;
        self.start_on_gpu("all-gather", own, |comm, stream| {
            // SAFETY: `n` floats of one array, `n_ranks · n` of another, which their program keeps.
            unsafe { result::all_gather(from as *const c_void, to as *mut c_void, n, float, comm, stream) }
        })?;
        self.sent_bytes += (self.n_ranks as u64 - 1) * 4 * n as u64;
        Ok(())
    }

    fn post(&mut self, own: &[u8], n_most: usize) -> Result<Posted, WorldError> {
        if self.comm.is_null() {
            return Err(WorldError::OutOfStep("nothing travels by NCCL after an error".to_owned()));
        }
        let stream = Arc::clone(&self.stream);
        let mut post = match self.spare.pop().filter(|post| post.n_most() == n_most) {
            Some(post) => post,
            None => Post::new(&stream, self.n_ranks, n_most).map_err(of_driver)?,
        };
        self.ring.board().enter_collective();
        let (from, to, n) = post.send(&stream, own).map_err(of_driver)?;
        let byte = sys::ncclDataType_t::ncclUint8;
        let to = to as *mut c_void;
        // SAFETY: `n` bytes of one array, `n_ranks · n` of another, kept until they were collected.
        let begun =
            unsafe { result::all_gather(from as *const c_void, to, n, byte, self.comm, stream.cu_stream().cast()) };
        self.settle(begun, "all-gather")?;
        post.bring(&stream).map_err(of_driver)?;
        self.sent_bytes += (self.n_ranks as u64 - 1) * n as u64;
        self.posted.push_back(post);
        Ok(Posted::UnderWay)
    }

    fn collect(&mut self, posted: Posted) -> Result<Vec<Vec<u8>>, WorldError> {
        let post = match posted {
            Posted::Shared(shared) => return Ok(shared),
            Posted::UnderWay => self.posted.pop_front().expect("what is under way was posted"),
        };
        const WHAT: &str = "all-gather";
        self.wait(WHAT, |nccl| {
            nccl.check_comm(WHAT)?;
            post.is_done().map_err(of_driver)
        })?;
        let shared = post.shared().map_err(of_driver)?;
        self.spare.push(post);
        Ok(shared)
    }

    fn wait_until(&mut self, is_over: &mut dyn FnMut() -> Result<bool, WorldError>) -> Result<(), WorldError> {
        self.wait("computation", |_| is_over())
    }

    /// NCCL does not tell: of tensors, what its rings send.
    fn sent_bytes(&self) -> u64 {
        self.sent_bytes + self.ring.sent_bytes()
    }
}

impl Drop for Nccl {
    /// A run that ended well has waited for every collective. Destroying would wait for the other ranks.
    fn drop(&mut self) {
        self.abort();
    }
}

fn of_driver(error: DriverError) -> WorldError {
    let name = format!("{:?}", error.0);
    WorldError::Device { code: device_code::of_driver(&name), sentence: format!("the NVIDIA driver refused: {name}") }
}

/// NCCL refuses where its network or the system does: worth another try.
fn of_nccl(error: NcclError) -> WorldError {
    WorldError::Device { code: RETRY, sentence: format!("NCCL refused: {:?}", error.0) }
}

#[cfg(test)]
mod tests;
