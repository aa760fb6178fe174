//! Name of this process at sampling servers.

use std::{
    hash::{BuildHasher, RandomState},
    sync::OnceLock,
};

/// Name of this process at sampling servers: 16 hexadecimal digits, others for each process. It is sent with every call, servers put
/// it in lines of their logs, and the report of a run has it. Nothing that is computed depends on it.
pub fn session() -> &'static str {
    static SESSION: OnceLock<String> = OnceLock::new();
    SESSION.get_or_init(|| format!("{:016x}", RandomState::new().hash_one(std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_its_name() {
        assert!(session().len() == 16 && session().bytes().all(|digit| digit.is_ascii_hexdigit()), "{}", session());
        assert_eq!(std::thread::spawn(session).join().unwrap(), session());
    }
}
