//! The built `kith` program, run as a user runs it.

use std::process::{Command, Output};

fn kith(args: &[&str], set: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kith"));
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
    assert_eq!(report["instruction_set"], "default");
    assert_eq!(report["n_libtorch_threads"], 1);
    assert!(report["cuda"]["devices"].is_array() || report["cuda"]["missing"].is_string(), "{report}");
}

/// Law 5: one build for machines with and without CUDA, so CUDA must not be linked, only opened.
#[test]
fn links_no_cuda_beyond_what_libtorch_itself_needs() {
    let output = kith(&[], &[("LD_TRACE_LOADED_OBJECTS", "1")]); // The loader lists the libraries and runs nothing.
    let text = String::from_utf8(output.stdout).expect("text");
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

#[test]
fn a_wrong_argument_is_bad_input() {
    assert_eq!(kith(&["devices", "--jsno"], &[]).status.code(), Some(1));
}
