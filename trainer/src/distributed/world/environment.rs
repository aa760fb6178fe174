//! Rank and process group from the environment that a launcher sets: `torchrun`'s variables, Slurm's, and the index of
//! a Kubernetes Job.

use super::WorldError;

/// The port where ranks meet when nobody says another: `torchrun`'s.
const DEFAULT_PORT: u16 = 29500;

/// Place of a process in its process group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its number.
    pub rank: usize,
    /// Number of ranks.
    pub n_ranks: usize,
    /// Its number among the ranks of its host, where the launcher tells.
    pub rank_on_host: Option<usize>,
    /// Number of ranks on its host, where the launcher tells.
    pub n_on_host: Option<usize>,
    /// The host where rank 0 listens: a name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Seat {
    /// Reads the environment; `None` if no launcher set anything: a single rank.
    pub fn from_environment(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Seat>, WorldError> {
        let environment = Environment { lookup };
        let slurm = environment.in_slurm_step()?;
        let Some((size_name, n_ranks)) = environment.first_number(if slurm {
            &["WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]
        } else {
            &["WORLD_SIZE"]
        })?
        else {
            return match environment.text("RANK") {
                Some(rank) => refuse(format!("RANK is {rank}, but WORLD_SIZE is not set: set both or neither")),
                None => Ok(None),
            };
        };
        if n_ranks == 0 {
            return refuse(format!("{size_name} is 0: a world has at least one rank"));
        }
        let names: &[&str] =
            if slurm { &["RANK", "JOB_COMPLETION_INDEX", "SLURM_PROCID"] } else { &["RANK", "JOB_COMPLETION_INDEX"] };
        let Some((rank_name, rank)) = environment.first_number(names)? else {
            return refuse(format!("{size_name} is {n_ranks}, but RANK is not set: set it to this rank's number"));
        };
        if rank >= n_ranks {
            return refuse(format!("{rank_name} is {rank}, but {size_name} is {n_ranks}: ranks count from 0"));
        }
        let rank_on_host = environment.first_number(&["LOCAL_RANK", "SLURM_LOCALID"])?.map(|(_, number)| number);
        let n_on_host = match environment.number("LOCAL_WORLD_SIZE")? {
            Some(0) => return refuse("LOCAL_WORLD_SIZE is 0: set it to the number of ranks on this host"),
            None if slurm => environment.slurm_tasks_on_host(),
            number => number,
        };
        let host = match environment.text("MASTER_ADDR") {
            Some(host) => host,
            None if slurm => environment.first_slurm_host()?,
            None if n_ranks == 1 => "localhost".to_owned(),
            None => {
                return refuse(format!(
                    "{size_name} is {n_ranks}, but MASTER_ADDR is not set: set it to the host of rank 0"
                ));
            }
        };
        let port = match environment.number("MASTER_PORT")? {
            None => DEFAULT_PORT,
            Some(port) => match u16::try_from(port) {
                Ok(port) if port > 0 => port,
                _ => return refuse(format!("MASTER_PORT is {port}: ports are 1 to 65535")),
            },
        };
        Ok(Some(Seat { rank, n_ranks, rank_on_host, n_on_host, host, port }))
    }

    /// Address of rank 0, as written.
    pub(super) fn place(&self) -> String {
        if self.host.contains(':') && !self.host.starts_with('[') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

struct Environment<L> {
    lookup: L,
}

impl<L: Fn(&str) -> Option<String>> Environment<L> {
    /// A variable; empty means unset.
    fn text(&self, name: &str) -> Option<String> {
        (self.lookup)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn number(&self, name: &str) -> Result<Option<usize>, WorldError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => refuse(format!("{name} is {text:?}: it must be a number")),
        }
    }

    /// The first of some variables that is set.
    fn first_number<'a>(&self, names: &[&'a str]) -> Result<Option<(&'a str, usize)>, WorldError> {
        for name in names {
            if let Some(number) = self.number(name)? {
                return Ok(Some((name, number)));
            }
        }
        Ok(None)
    }

    /// True for a task that `srun` started. Slurm sets some of the same variables in the shell of an allocation, where
    /// one process runs and waits for nobody.
    fn in_slurm_step(&self) -> Result<bool, WorldError> {
        let Some(task) = self.number("SLURM_PROCID")? else { return Ok(false) };
        let step = ["SLURM_STEP_ID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "MASTER_ADDR"];
        Ok(task > 0 || step.iter().any(|name| self.text(name).is_some()))
    }

    /// Tasks of the step on this host; `None` if Slurm does not say.
    fn slurm_tasks_on_host(&self) -> Option<usize> {
        let host = self.text("SLURM_NODEID").and_then(|number| number.parse().ok());
        let names = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"];
        names.iter().find_map(|name| tasks_on_host(&self.text(name)?, host))
    }

    fn first_slurm_host(&self) -> Result<String, WorldError> {
        let names = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"];
        let Some((name, list)) = names.iter().find_map(|name| Some((name, self.text(name)?))) else {
            return refuse("neither MASTER_ADDR nor SLURM_JOB_NODELIST is set: set MASTER_ADDR to the host of rank 0");
        };
        match first_host(&list) {
            Some(host) => Ok(host),
            None => refuse(format!("{name} is {list:?}, which is no list of hosts: set MASTER_ADDR")),
        }
    }
}

/// The first host of a list as Slurm writes it, such as `gpu[003-007,12],login1`.
fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list;
    loop {
        let stop = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..stop]);
        rest = &rest[stop..];
        let Some(after) = rest.strip_prefix('[') else { break };
        let (numbers, after) = after.split_once(']')?;
        let first = numbers.split([',', '-']).next().filter(|first| !first.is_empty())?;
        host.push_str(first);
        rest = after;
    }
    (!host.is_empty() && !host.contains(']')).then_some(host)
}

/// Tasks of a host in a list as Slurm writes it, such as `4(x2),1`; of an unknown host, the most.
fn tasks_on_host(list: &str, host: Option<usize>) -> Option<usize> {
    let mut counts = Vec::new();
    for part in list.split(',') {
        let (n_tasks, n_hosts) = match part.split_once("(x") {
            Some((n_tasks, n_hosts)) => (n_tasks, n_hosts.strip_suffix(')')?.parse().ok()?),
            None => (part, 1usize),
        };
        counts.push((n_tasks.parse::<usize>().ok().filter(|n_tasks| *n_tasks > 0)?, n_hosts));
    }
    let most = counts.iter().map(|(n_tasks, _)| *n_tasks).max();
    let Some(mut host) = host else { return most };
    for (n_tasks, n_hosts) in counts {
        match host.checked_sub(n_hosts) {
            Some(after) => host = after,
            None => return Some(n_tasks),
        }
    }
    most
}

fn refuse<T>(sentence: impl Into<String>) -> Result<T, WorldError> {
    Err(WorldError::Refused(sentence.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(variables: &[(&str, &str)]) -> Result<Option<Seat>, String> {
        let lookup = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        Seat::from_environment(lookup).map_err(|error| {
            assert_eq!(error.code(), 1);
            error.to_string()
        })
    }

    fn expect(variables: &[(&str, &str)], expected: (usize, usize, Option<usize>, &str, u16)) {
        let (rank, n_ranks, rank_on_host, host, port) = expected;
        let (host, n_on_host) = (host.to_owned(), None);
        let expected = Seat { rank, n_ranks, rank_on_host, n_on_host, host, port };
        assert_eq!(seat(variables), Ok(Some(expected)), "{variables:?}");
    }

    #[test]
    fn launchers_are_understood() {
        let torchrun = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "host-a"),
            ("MASTER_PORT", "4000"),
        ];
        expect(&torchrun, (3, 4, Some(1), "host-a", 4000));
        expect(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "::1")], (0, 2, None, "::1", 29500));
        expect(&[("RANK", "0"), ("WORLD_SIZE", "1")], (0, 1, None, "localhost", 29500));
        let job = [("JOB_COMPLETION_INDEX", "2"), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "train-0.train")];
        expect(&job, (2, 3, None, "train-0.train", 29500));
        let slurm = [
            ("SLURM_PROCID", "5"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_NODELIST", "gpu[003-007,12]"),
            ("SLURM_JOB_NODELIST", "login1,gpu[003-007,12]"),
        ];
        expect(&slurm, (5, 8, Some(1), "gpu003", 29500));
        let smaller_step = [("SLURM_STEP_NUM_TASKS", "6"), ("MASTER_PORT", "1234")];
        expect(&[&slurm[..], &smaller_step].concat(), (5, 6, Some(1), "gpu003", 1234));
        expect(&[&slurm[..], &torchrun].concat(), (3, 4, Some(1), "host-a", 4000));
    }

    #[test]
    fn launchers_say_how_many_ranks_a_host_has() {
        let of = |variables: &[(&str, &str)]| seat(variables).map(|seat| seat.unwrap().n_on_host);
        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "a"), ("LOCAL_WORLD_SIZE", "2")];
        assert_eq!(of(&torchrun), Ok(Some(2)));
        assert_eq!(of(&torchrun[..3]), Ok(None));
        let slurm = [("SLURM_PROCID", "5"), ("SLURM_NTASKS", "9"), ("SLURM_STEP_NODELIST", "a[1-3]")];
        let with = |more: &[(&'static str, &'static str)]| of(&[&slurm[..], more].concat());
        assert_eq!(with(&[]), Ok(None));
        assert_eq!(with(&[("SLURM_TASKS_PER_NODE", "4(x2),1"), ("SLURM_NODEID", "2")]), Ok(Some(1)));
        assert_eq!(with(&[("SLURM_NTASKS_PER_NODE", "3")]), Ok(Some(3)));
        // The step counts, not the job.
        let both = [("SLURM_STEP_TASKS_PER_NODE", "2(x4)"), ("SLURM_TASKS_PER_NODE", "8"), ("SLURM_NODEID", "3")];
        assert_eq!(with(&both), Ok(Some(2)));
        assert_eq!(with(&[("LOCAL_WORLD_SIZE", "6"), both[0]]), Ok(Some(6)));
        // Without `srun`, the job's tasks are not this process's neighbors.
        assert_eq!(of(&[("RANK", "0"), ("WORLD_SIZE", "1"), both[1]]), Ok(None));
    }

    #[test]
    fn lists_of_tasks_have_a_number_for_every_host() {
        let all = |list| [0, 1, 2, 3, 9].map(|host| tasks_on_host(list, Some(host)));
        assert_eq!(all("4"), [Some(4); 5]);
        assert_eq!(all("4(x2)"), [Some(4); 5]);
        assert_eq!(all("2,3(x2),1"), [Some(2), Some(3), Some(3), Some(1), Some(3)]);
        assert_eq!(tasks_on_host("2,3(x2),1", None), Some(3));
        for list in ["", "x", "4(x", "4(x2", "4(xy)", "0", "4,", "-1"] {
            assert_eq!(tasks_on_host(list, Some(0)), None, "{list}");
        }
    }

    #[test]
    fn without_a_launcher_there_is_one_rank() {
        assert_eq!(seat(&[]), Ok(None));
        assert_eq!(seat(&[("MASTER_ADDR", "left-over"), ("LOCAL_RANK", "0")]), Ok(None));
        assert_eq!(seat(&[("WORLD_SIZE", ""), ("RANK", " ")]), Ok(None));
        // One of many jobs that have nothing to do with each other.
        assert_eq!(seat(&[("JOB_COMPLETION_INDEX", "4")]), Ok(None));
        // A batch script and the shell of an allocation, without `srun`.
        let script = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4"), ("SLURM_JOB_NODELIST", "a[1-4]")];
        assert_eq!(seat(&script), Ok(None));
        assert_eq!(seat(&script[1..]), Ok(None));
    }

    #[test]
    fn half_an_environment_is_refused_by_name() {
        let address = ("MASTER_ADDR", "a");
        for (variables, words) in [
            (vec![("RANK", "0")], ["RANK is 0", "WORLD_SIZE is not set"]),
            (vec![("WORLD_SIZE", "2"), address], ["WORLD_SIZE is 2", "RANK is not set"]),
            (vec![("WORLD_SIZE", "2"), ("RANK", "1")], ["WORLD_SIZE is 2", "MASTER_ADDR is not set"]),
            (vec![("WORLD_SIZE", "2"), ("RANK", "2"), address], ["RANK is 2", "WORLD_SIZE is 2"]),
            (vec![("WORLD_SIZE", "0"), ("RANK", "0"), address], ["WORLD_SIZE is 0", "at least one"]),
            (vec![("WORLD_SIZE", "two"), ("RANK", "0")], ["WORLD_SIZE is \"two\"", "number"]),
            (vec![("WORLD_SIZE", "2"), ("RANK", "-1")], ["RANK is \"-1\"", "number"]),
            (vec![("WORLD_SIZE", "2"), ("RANK", "0"), address, ("LOCAL_RANK", "x")], ["LOCAL_RANK is", "number"]),
            (
                vec![("WORLD_SIZE", "2"), ("RANK", "0"), address, ("LOCAL_WORLD_SIZE", "0")],
                ["LOCAL_WORLD_SIZE is 0", "set it"],
            ),
            (vec![("WORLD_SIZE", "2"), ("RANK", "0"), address, ("MASTER_PORT", "70000")], ["MASTER_PORT", "65535"]),
            (vec![("WORLD_SIZE", "2"), ("RANK", "0"), address, ("MASTER_PORT", "0")], ["MASTER_PORT", "65535"]),
            (vec![("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2")], ["MASTER_ADDR", "SLURM_JOB_NODELIST"]),
            (
                vec![("SLURM_PROCID", "1"), ("SLURM_NTASKS", "2"), ("SLURM_JOB_NODELIST", "a[1-")],
                ["SLURM_JOB_NODELIST is", "set MASTER_ADDR"],
            ),
            (
                vec![("WORLD_SIZE", "2"), ("JOB_COMPLETION_INDEX", "5"), address],
                ["JOB_COMPLETION_INDEX is 5", "WORLD_SIZE is 2"],
            ),
        ] {
            let sentence = seat(&variables).unwrap_err();
            for word in words {
                assert!(sentence.contains(word), "{variables:?}: {sentence}");
            }
        }
    }

    #[test]
    fn lists_of_hosts_have_a_first() {
        for (list, first) in [
            ("host", Some("host")),
            ("host1,host2", Some("host1")),
            ("host[1-3,5]", Some("host1")),
            ("host[007-010]", Some("host007")),
            ("host[12]", Some("host12")),
            ("rack[1-2]-host[3,4].local,other", Some("rack1-host3.local")),
            ("a.b.c", Some("a.b.c")),
            ("", None),
            (",a", None),
            ("host[", None),
            ("host[]", None),
            ("host]", None),
        ] {
            assert_eq!(first_host(list).as_deref(), first, "{list}");
        }
    }
}
