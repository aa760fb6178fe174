//! Hosts on one machine: network namespaces with their own addresses, names and hostnames, on one bridge.
//!
//! They do not touch the machine's own network or names. A namespace lives as long as the process that holds it, which
//! ends with the test in any case, together with every process of its host.

mod line;

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read},
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use self::line::Line;

/// Time limit of a system command.
const LIMIT: Duration = Duration::from_secs(20);

/// Sets up a namespace, announces it, holds it until stdin ends, and ends all processes left in it.
const HOLD: &str = r#"
exec 2>&1
set -e
ip link set lo up
if [ "$1" = hub ]; then
    ip link add name bridge type bridge
    ip link set bridge up
else
    hostname "$2"
    mount --bind "$3" /etc/hosts
fi
echo ready
exec >/dev/null
set +e
cat
for attempt in 1 2 3; do
    for place in $(find -L /proc/[0-9]*/ns/net -maxdepth 0 -samefile /proc/$$/ns/net 2>/dev/null); do
        process=${place#/proc/}
        process=${process%/ns/net}
        [ "$process" = $$ ] || kill -9 "$process" 2>/dev/null
    done
done
"#;

/// Enters the namespaces of a process and executes a program there, in the folder where it was started.
const ENTER: &str = r#"
target=$1 users=$2
shift 2
exec nsenter --target "$target" $users --net --mount --uts -- sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
"#;

/// Hosts that reach only each other.
pub(crate) struct Hosts {
    hosts: Vec<Host>,
    line: Option<Line>,
    hub: Holder,
    _temp: tempfile::TempDir,
}

struct Host {
    names: Vec<String>,
    address: Ipv4Addr,
    holder: Holder,
}

impl Hosts {
    /// Hosts with these names, which all of them resolve. A host may have several, separated by spaces: the first is
    /// its hostname, and one that several hosts share resolves to all of their addresses.
    ///
    /// `None`, with a message, if this machine does not permit it.
    #[allow(clippy::print_stderr)]
    pub(crate) fn new(names: &[&str]) -> Option<Hosts> {
        // Without root, a user namespace may permit it.
        match Hosts::try_new(names, Users::These).or_else(|_| Hosts::try_new(names, Users::Own)) {
            Ok(hosts) => Some(hosts),
            Err(reason) => {
                eprintln!("skipped: there can be no hosts on this machine: {reason}");
                None
            }
        }
    }

    fn try_new(names: &[&str], users: Users) -> Result<Hosts, String> {
        let temp = tempfile::tempdir().map_err(|error| error.to_string())?;
        let table = temp.path().join("hosts");
        let mut lines = String::from("127.0.0.1 localhost\n");
        for (i, names) in names.iter().enumerate() {
            lines += &format!("{} {names}\n", address(i));
        }
        fs::write(&table, lines).map_err(|error| error.to_string())?;
        let table = table.to_str().ok_or("a folder's name is no text")?;
        let mut unshare = Command::new("unshare");
        unshare.args(match users {
            Users::These => &["--net"][..],
            Users::Own => &["--net", "--user", "--map-root-user"],
        });
        let hub = Holder::start(unshare, users, &["hub"])?;
        let mut hosts = Vec::new();
        for (i, names) in names.iter().enumerate() {
            let names: Vec<String> = names.split_whitespace().map(String::from).collect();
            let mut unshare = hub.enter();
            unshare.args(["unshare", "--net", "--mount", "--uts"]);
            let holder = Holder::start(unshare, users, &["host", &names[0], table])?;
            let (port, at) = (port(i), holder.id());
            hub.run(&format!(
                "ip link add name {port} type veth peer name eth0 netns {at} && ip link set {port} master bridge up"
            ))?;
            let address = address(i);
            holder.run(&format!("ip address add {address}/24 dev eth0 && ip link set eth0 up"))?;
            hosts.push(Host { names, address, holder });
        }
        Ok(Hosts { hosts, line: None, hub, _temp: temp })
    }

    /// A program on a host. It is the started process itself, so that signals and exit codes are its own.
    pub(crate) fn command(&self, host: &str, program: impl AsRef<OsStr>) -> Command {
        let holder = &self.hosts[self.find(host)].holder;
        let mut command = Command::new("sh");
        command.args(["-c", ENTER, "enter", &holder.id(), &holder.users.entering().join(" ")]).arg(program);
        command
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: &str) -> Ipv4Addr {
        self.hosts[self.find(host)].address
    }

    /// Takes a host's link down.
    pub(crate) fn cut(&self, host: &str) {
        self.on_port(host, "down");
    }

    /// Takes a host's link up again.
    pub(crate) fn heal(&self, host: &str) {
        self.on_port(host, "up");
    }

    fn on_port(&self, host: &str, state: &str) {
        let port = port(self.find(host));
        self.hub.run(&format!("ip link set {port} {state}")).expect("a link can be set");
    }

    /// Inserts lines between hosts that can be disturbed. An error says why this is not permitted.
    pub(crate) fn lengthen(&mut self) -> Result<(), String> {
        let line = Line::start(self.hub.enter(), self.hosts.len())?;
        for host in 0..self.hosts.len() {
            self.hub.run(&line::insertion(host, &port(host)))?;
        }
        self.line = Some(line);
        Ok(())
    }

    /// Delays all frames on inserted lines.
    pub(crate) fn delay(&mut self, by: Duration) {
        self.order(&format!("delay {}", by.as_millis()));
    }

    /// Loses this percentage of frames, on inserted lines or by a firewall rule of each host. An error says why it
    /// cannot.
    pub(crate) fn lose(&mut self, percent: u32) -> Result<(), String> {
        if let Some(line) = &mut self.line {
            return line.order(&format!("loss {percent}"));
        }
        let mut rules = "flush ruleset; add table ip loss; \
             add chain ip loss input { type filter hook input priority 0; }"
            .to_owned();
        if let Some(last) = percent.checked_sub(1) {
            rules += &format!("; add rule ip loss input numgen random mod 100 <= {last} drop");
        }
        self.hosts.iter().try_for_each(|host| host.holder.run(&format!("nft '{rules}'")))
    }

    /// Holds all frames until [`Hosts::go_on`], which delivers them.
    pub(crate) fn stall(&mut self) {
        self.order("stall");
    }

    /// Ends a stall.
    pub(crate) fn go_on(&mut self) {
        self.order("go");
    }

    #[track_caller]
    fn order(&mut self, order: &str) {
        self.line.as_mut().expect("lines were put there").order(order).expect("the lines are there");
    }

    #[track_caller]
    fn find(&self, name: &str) -> usize {
        let found = self.hosts.iter().position(|host| host.names.iter().any(|own| own == name));
        found.unwrap_or_else(|| panic!("there is no host {name}"))
    }
}

/// Any address will do: these namespaces are isolated.
fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(host + 1).expect("few hosts"))
}

/// Name of a host's port at the bridge.
fn port(host: usize) -> String {
    format!("port{host}")
}

/// Users in the namespaces.
#[derive(Clone, Copy)]
enum Users {
    /// Those of this machine.
    These,
    /// Only root, mapped to the user who runs the test.
    Own,
}

impl Users {
    /// Options of `nsenter` to become one of them.
    fn entering(self) -> &'static [&'static str] {
        match self {
            Users::These => &[],
            Users::Own => &["--user", "--preserve-credentials"],
        }
    }
}

/// A process that holds namespaces, and ends with this one.
struct Holder {
    child: Child,
    users: Users,
}

impl Holder {
    /// Starts it with a command that creates the namespaces and executes another.
    fn start(mut command: Command, users: Users, arguments: &[&str]) -> Result<Holder, String> {
        command.args(["sh", "-c", HOLD, "hold"]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        let mut holder = Holder { child, users };
        let mut line = String::new();
        let mut stdout = BufReader::new(holder.child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).map_err(|error| error.to_string())?;
        if line.trim() == "ready" {
            return Ok(holder);
        }
        // `unshare` or a command of the script has failed and printed the reason.
        let mut stderr = holder.child.stderr.take().expect("piped");
        stderr.read_to_string(&mut line).map_err(|error| error.to_string())?;
        Err(line.trim().to_owned())
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// A command that enters its network and executes another.
    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.id(), "--net"]).args(self.users.entering()).arg("--");
        command
    }

    /// Runs system commands in its network.
    fn run(&self, script: &str) -> Result<(), String> {
        let mut command = self.enter();
        command.args(["timeout", &LIMIT.as_secs().to_string(), "sh", "-c", script]);
        let ran = command.output().map_err(|error| format!("nsenter: {error}"))?;
        if ran.status.success() {
            return Ok(());
        }
        Err(format!("{script}: {}", String::from_utf8_lossy(&ran.stderr).trim()))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > LIMIT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kith::finish_within;

    fn says(command: &mut Command) -> (Option<i32>, String) {
        let finished = finish_within(command, LIMIT);
        (finished.code, finished.stdout + &finished.stderr)
    }

    /// True if a connection to a port succeeds within some seconds.
    fn reaches(hosts: &Hosts, to: &str, seconds: f64) -> bool {
        let connect = format!("timeout {seconds} bash -c ': </dev/tcp/{to}/9'");
        says(hosts.command("two", "sh").args(["-c", &connect])).0 == Some(0)
    }

    /// A listener that lives as long as its host.
    fn listen(hosts: &Hosts, script: &str) -> Child {
        let listen =
            format!("import socket, time; s = socket.create_server(('', 9)); print('up', flush=True)\n{script}");
        let mut command = hosts.command("one", "python3");
        let mut server = command.args(["-c", &listen]).stdout(Stdio::piped()).spawn().unwrap();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        server
    }

    #[test]
    fn hosts_see_each_other_by_name_and_nothing_else() {
        let Some(hosts) = Hosts::new(&["one one.example", "two"]) else { return };
        let (code, said) =
            says(hosts.command("one", "sh").args(["-c", "hostname; getent hosts two; ip -o -4 address"]));
        let interfaces = said.lines().skip(2).map(|line| line.split_whitespace().nth(1).unwrap());
        assert_eq!((code, interfaces.collect::<Vec<_>>()), (Some(0), vec!["lo", "eth0"]), "{said}");
        let mut lines = said.lines();
        assert_eq!(lines.next(), Some("one"));
        assert!(lines.next().unwrap().starts_with(&hosts.address("two").to_string()), "{said}");
        let mut folder = hosts.command("two", "sh");
        assert_eq!(says(folder.current_dir("/usr").args(["-c", "pwd; exit 7"])), (Some(7), "/usr\n".to_owned()));

        let mut server = listen(&hosts, "time.sleep(60)");
        assert!(reaches(&hosts, "one.example", 10.0));
        assert!(!reaches(&hosts, "two", 10.0), "nobody listens there");
        hosts.cut("one");
        assert!(!reaches(&hosts, "one", 0.5));
        hosts.heal("one");
        assert!(reaches(&hosts, "one", 10.0));
        // Processes of a host end with it.
        let started = Instant::now();
        drop(hosts);
        server.wait().unwrap();
        assert!(started.elapsed() < LIMIT);
    }

    #[test]
    #[allow(clippy::print_stderr)]
    fn lines_delay_stall_and_lose() {
        let Some(mut hosts) = Hosts::new(&["one", "two"]) else { return };
        if let Err(reason) = hosts.lengthen() {
            eprintln!("skipped: {reason}");
            return;
        }
        let mut server = listen(&hosts, "while True:\n    c, _ = s.accept()\n    c.sendall(c.recv(9))");
        let ask = "import socket, time
t = time.monotonic(); c = socket.create_connection(('one', 9), 15); c.sendall(b'a'); c.recv(9)
print(time.monotonic() - t)";
        let seconds = |command: &mut Command| -> f64 {
            let (code, said) = says(command.args(["-c", ask]));
            assert_eq!(code, Some(0), "{said}");
            said.trim().parse().unwrap()
        };
        seconds(&mut hosts.command("two", "python3")); // From here on, both have resolved each other's addresses.
        hosts.delay(Duration::from_millis(50));
        let delayed = seconds(&mut hosts.command("two", "python3"));
        assert!(delayed >= 0.2, "twice there and back are four delays, not {delayed} s");
        hosts.delay(Duration::ZERO);
        hosts.stall();
        let mut asking = hosts.command("two", "python3");
        let asking = thread::spawn(move || seconds(&mut asking));
        thread::sleep(Duration::from_secs(1));
        assert!(!asking.is_finished());
        hosts.go_on();
        asking.join().unwrap();
        hosts.lose(100).unwrap();
        assert!(!reaches(&hosts, "one", 0.5));
        hosts.lose(0).unwrap();
        assert!(reaches(&hosts, "one", 10.0));
        drop(hosts);
        server.wait().unwrap();
    }

    #[test]
    #[allow(clippy::print_stderr)]
    fn rules_lose() {
        let Some(mut hosts) = Hosts::new(&["one", "two"]) else { return };
        if let Err(reason) = hosts.lose(0) {
            eprintln!("skipped: {reason}");
            return;
        }
        hosts.lose(100).unwrap();
        let mut server = listen(&hosts, "time.sleep(60)");
        assert!(!reaches(&hosts, "one", 0.5));
        hosts.lose(0).unwrap();
        assert!(reaches(&hosts, "one", 10.0));
        drop(hosts);
        server.wait().unwrap();
    }
}
