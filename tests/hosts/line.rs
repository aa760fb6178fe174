//! Lines between hosts that can be disturbed: a process that forwards their frames.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::kith::root;

/// The process that forwards frames.
pub(super) struct Line {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Line {
    /// Starts it with a command that enters the network of the bridge.
    pub(super) fn start(mut command: Command, n_hosts: usize) -> Result<Line, String> {
        command.arg("python3").arg(root().join("tests/hosts/line.py")).args((0..n_hosts).map(name));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (orders, answers) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut line = Line { child, orders, answers: BufReader::new(answers) };
        line.hear("ready").map(|()| line)
    }

    pub(super) fn order(&mut self, order: &str) -> Result<(), String> {
        writeln!(self.orders, "{order}").map_err(|error| error.to_string())?;
        self.hear("done")
    }

    fn hear(&mut self, word: &str) -> Result<(), String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| error.to_string())?;
        if line.trim() == word { Ok(()) } else { Err("python3 could not open lines between hosts".to_owned()) }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended already.
        let _ = self.child.wait();
    }
}

/// Inserts the line of a host between its port and the bridge.
pub(super) fn insertion(host: usize, port: &str) -> String {
    let name = name(host);
    format!(
        "ip link add name side{host} type bridge && ip link set side{host} up && \
         ip link set {port} nomaster && ip link set {port} master side{host} && \
         ip link set {name}-a master side{host} up && ip link set {name}-b master bridge up"
    )
}

fn name(host: usize) -> String {
    format!("line{host}")
}
