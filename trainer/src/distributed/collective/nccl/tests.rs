//! The contract on a GPU, if there is one. Ranks are processes, which may share it if NCCL takes each for a separate
//! host.

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tch::Device;

use crate::{
    distributed::{
        collective::contract::check_rank,
        world::{Facts, JoinConfig, Seat, World},
    },
    engine::device::{self, CudaReport, devices},
};

const LIMIT: Duration = Duration::from_secs(120);

#[test]
#[allow(clippy::print_stderr)]
fn ranks_on_one_gpu_keep_the_contract() {
    device::start();
    if let CudaReport::Missing(why) = devices().cuda {
        eprintln!("skipped: {why}");
        return;
    }
    for n_ranks in [2, 4] {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let start = |rank: usize| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["--exact", "collective::nccl::tests::one_rank", "--ignored"]).stdin(Stdio::null());
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", n_ranks.to_string());
            command.env("NCCL_SOCKET_IFNAME", "lo");
            command.spawn().unwrap()
        };
        let mut ranks: Vec<Child> = (0..n_ranks).map(start).collect();
        let started = Instant::now();
        while ranks.iter_mut().any(|rank| rank.try_wait().unwrap().is_none()) && started.elapsed() < LIMIT {
            thread::sleep(Duration::from_millis(10));
        }
        let codes: Vec<Option<i32>> = ranks
            .iter_mut()
            .map(|rank| {
                let _ = rank.kill(); // Those that have ended are not harmed.
                rank.wait().unwrap().code()
            })
            .collect();
        assert!(codes.iter().all(|code| *code == Some(0)), "{n_ranks} ranks: {codes:?}");
    }
}

#[test]
#[ignore = "one process of the test above"]
fn one_rank() {
    device::start();
    let Some(seat) = Seat::from_environment(|name| std::env::var(name).ok()).unwrap() else { return };
    let config = JoinConfig { cuda: Some(0), shares_device: true, ..JoinConfig::default() };
    let mut world = World::join(&seat, &config, Facts::new("cuda:0").unwrap()).unwrap();
    let place = (world.rank(), world.n_ranks());
    for device in [Device::Cuda(0), Device::Cpu] {
        check_rank(world.collective(), place, device, None);
    }
    world.leave();
}
