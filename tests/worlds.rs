//! Ranks of a run as processes that end with the test.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Started ranks of a process group.
pub(crate) struct Ranks {
    children: Vec<Option<Child>>,
    said: Vec<PathBuf>,
    codes: Vec<Option<i32>>,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).expect("a port is free").local_addr().expect("it is bound").port()
}

/// Sets a rank's environment in a process group.
pub(crate) fn seat(command: &mut Command, rank: usize, n_ranks: usize, port: u16) {
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", n_ranks.to_string()).env("LOCAL_RANK", rank.to_string());
    command.env("RAYON_NUM_THREADS", "1");
}

impl Ranks {
    /// Starts one command per rank; output goes to files in `dir`.
    pub(crate) fn start(dir: &Path, n_ranks: usize, command: impl Fn(usize) -> Command) -> Ranks {
        let port = free_port();
        let mut ranks = Ranks::none();
        for rank in 0..n_ranks {
            let mut command = command(rank);
            seat(&mut command, rank, n_ranks, port);
            ranks.add(dir, command);
        }
        ranks
    }

    /// No ranks yet.
    pub(crate) fn none() -> Ranks {
        Ranks { children: Vec::new(), said: Vec::new(), codes: Vec::new() }
    }

    /// Starts one more process, of any rank.
    pub(crate) fn add(&mut self, dir: &Path, mut command: Command) {
        fs::create_dir_all(dir).unwrap();
        let said = dir.join(format!("said-{}", self.children.len()));
        let file = File::create(&said).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        self.children.push(Some(command.spawn().expect("the program starts")));
        self.said.push(said);
        self.codes.push(None);
    }

    /// Sends a signal to a rank, by the signal's name.
    pub(crate) fn signal(&self, rank: usize, name: &str) {
        if let Some(child) = &self.children[rank] {
            let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
            assert!(sent.expect("kill is there").success());
        }
    }

    /// Kills a rank, as if its machine were lost.
    pub(crate) fn kill(&mut self, rank: usize) {
        if let Some(child) = &mut self.children[rank] {
            child.kill().expect("a child can be killed");
        }
    }

    /// True if all have ended.
    pub(crate) fn have_ended(&mut self) -> bool {
        for (child, code) in self.children.iter_mut().zip(&mut self.codes) {
            let ended = child.as_mut().and_then(|child| child.try_wait().expect("a child can be waited for"));
            if let Some(status) = ended {
                *code = Some(status.code().unwrap_or(-1));
                *child = None;
            }
        }
        self.children.iter().all(Option::is_none)
    }

    /// Number of running ranks.
    pub(crate) fn n_running(&mut self) -> usize {
        self.have_ended();
        self.children.iter().flatten().count()
    }

    /// Waits for all to end; returns exit codes, -1 for a killed one.
    #[track_caller]
    pub(crate) fn wait(&mut self, limit: Duration) -> Vec<i32> {
        let started = Instant::now();
        while !self.have_ended() {
            if started.elapsed() > limit {
                let running: Vec<usize> =
                    (0..self.children.len()).filter(|rank| self.children[*rank].is_some()).collect();
                panic!("ranks {running:?} did not end within {limit:?}:\n{}", self.all_said());
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.codes.iter().map(|code| code.expect("all have ended")).collect()
    }

    /// Output of a rank so far.
    pub(crate) fn said(&self, rank: usize) -> String {
        fs::read_to_string(&self.said[rank]).unwrap_or_default()
    }

    pub(crate) fn all_said(&self) -> String {
        (0..self.said.len()).map(|rank| format!("rank {rank}:\n{}", self.said(rank))).collect()
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill(); // It may have ended already; SIGKILL also ends a stopped process.
            let _ = child.wait();
        }
    }
}
