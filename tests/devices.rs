//! The `kith` program, run as a user runs it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::kith::program;

fn trainer() -> PathBuf {
    program().with_file_name("kith-trainer")
}

fn kith(args: &[&str], set: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program());
    command.args(args).env_remove("LD_LIBRARY_PATH").envs(set.iter().copied());
    command.output().expect("the program starts")
}

#[test]
fn runs_without_ld_library_path() {
    let output = kith(&["devices"], &[]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("libtorch         2.11.0\n"), "{text}");
}

#[test]
fn json_has_the_named_fields() {
    let output = kith(&["devices", "--json"], &[("ATEN_CPU_CAPABILITY", "default")]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(report["libtorch"], "2.11.0");
    let arithmetic = report["instruction_set"].as_str().expect("a name");
    assert_eq!(arithmetic.split('-').next(), Some("default"), "{arithmetic}");
    assert_eq!(report["n_libtorch_threads"], 1);
    assert!(report["cuda"]["devices"].is_array() || report["cuda"]["missing"].is_string(), "{report}");
}

/// Libraries that the loader would load for a program, which is not run.
fn libraries(program: &Path) -> String {
    let mut command = Command::new(program);
    let output = command.env_remove("LD_LIBRARY_PATH").env("LD_TRACE_LOADED_OBJECTS", "1").output();
    String::from_utf8(output.expect("the program is there").stdout).expect("text")
}

/// Law 5: one build for machines with and without CUDA, so CUDA must not be linked, only opened.
#[test]
fn links_no_cuda_beyond_what_libtorch_itself_needs() {
    let text = libraries(&trainer());
    assert!(text.contains("libtorch_cpu.so => "), "{text}");
    assert!(!text.contains("not found"), "{text}");
    for line in text.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let is_cuda = ["cuda", "cudnn", "cublas", "cufft", "cusparse", "nccl", "nvrtc", "cupti"]
            .iter()
            .any(|word| name.contains(word));
        assert!(!is_cuda || name == "libcudart.so.13" || name == "libcupti.so.13", "{line}");
    }
}

/// Commands without tensors start at once.
#[test]
fn kith_itself_has_no_libtorch_in_it() {
    let text = libraries(program());
    // Without the addresses, whose digits may look like a name.
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let has = |part: &str| names.iter().any(|name| name.contains(part));
    assert!(has("libc.so") && !has("torch") && !has("c10"), "{text}");
}

#[test]
fn kith_without_its_trainer_says_so() {
    let temp = tempfile::tempdir().expect("a folder");
    let alone = temp.path().join("kith");
    std::fs::copy(program(), &alone).expect("a copy");
    let output = Command::new(&alone).arg("devices").output().expect("the program starts");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("kith-trainer not found: install kith-trainer in the folder of kith"), "{text}");
    let output = Command::new(&alone).args(["data", "list"]).output().expect("the program starts");
    assert!(output.status.success());
}

#[test]
fn the_trainer_alone_is_no_command() {
    let output = Command::new(trainer()).args(["data", "list"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("start kith instead"));
}

#[test]
fn a_wrong_argument_is_bad_input() {
    assert_eq!(kith(&["devices", "--jsno"], &[]).status.code(), Some(1));
}
