//! CPU instruction set of the kernels, and name of the machine's arithmetic, detected on first use.

use std::sync::OnceLock;

/// The sets of CPU instructions that kernels are compiled for, libtorch's and ours, by the names that libtorch's
/// `ATEN_CPU_CAPABILITY` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstructionSet {
    /// Baseline of the architecture.
    Default,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// 512-bit vectors.
    Avx512,
}

impl InstructionSet {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            InstructionSet::Default => "default",
            InstructionSet::Avx2 => "avx2",
            InstructionSet::Avx512 => "avx512",
        }
    }
}

/// Name of the arithmetic of this machine: two machines of one name compute the same bits. The instruction set in use, and the vendor of
/// a CPU that is not Intel's: libtorch multiplies matrices with MKL, which has other code for those.
pub fn arithmetic() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        format!("{}{}", instruction_set().name(), suffix(&cpu))
    })
}

fn suffix(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("vendor_id"));
    match line.map(|line| line.trim_start_matches([' ', '\t', ':'])) {
        Some("GenuineIntel") => String::new(),
        Some("AuthenticAMD") => "-amd".to_owned(),
        Some(vendor) => format!("-{}", vendor.to_lowercase()),
        None => "-unknown".to_owned(),
    }
}

/// Instruction set in use: `ATEN_CPU_CAPABILITY` if this machine supports it, else the widest supported one.
pub fn instruction_set() -> InstructionSet {
    static FOUND: OnceLock<InstructionSet> = OnceLock::new();
    *FOUND.get_or_init(|| chosen(std::env::var("ATEN_CPU_CAPABILITY").ok().as_deref(), widest()))
}

fn chosen(asked: Option<&str>, widest: InstructionSet) -> InstructionSet {
    match (asked, widest) {
        (Some("default"), _) => InstructionSet::Default,
        (Some("avx2"), InstructionSet::Avx2 | InstructionSet::Avx512) => InstructionSet::Avx2,
        _ => widest,
    }
}

#[cfg(target_arch = "x86_64")]
fn widest() -> InstructionSet {
    let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let has_avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    match has_avx2 {
        true if has_avx512 => InstructionSet::Avx512,
        true => InstructionSet::Avx2,
        false => InstructionSet::Default,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn widest() -> InstructionSet {
    InstructionSet::Default
}

#[cfg(test)]
mod tests {
    use super::{InstructionSet::*, *};

    #[test]
    fn arithmetic_names_the_vendor() {
        let of = |vendor| suffix(&format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: 6\n"));
        assert_eq!(
            [of("GenuineIntel"), of("AuthenticAMD"), of("HygonGenuine"), suffix("")],
            ["", "-amd", "-hygongenuine", "-unknown"]
        );
        assert!(arithmetic().starts_with(instruction_set().name()), "{}", arithmetic());
    }

    #[test]
    fn what_is_asked_for_wins_where_the_machine_has_it() {
        for (asked, widest, expected) in [
            (Some("default"), Avx512, Default),
            (Some("avx2"), Avx512, Avx2),
            (Some("avx512"), Avx512, Avx512),
            (Some("avx512"), Avx2, Avx2),
            (Some("avx2"), Default, Default),
            (Some("nonsense"), Avx2, Avx2),
            (None, Avx512, Avx512),
        ] {
            assert_eq!(chosen(asked, widest), expected, "{asked:?} on a machine with {widest:?}");
        }
    }
}
