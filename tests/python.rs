//! `import kith` in a Python with PyTorch and PyG.

use std::{fs, process::Command, time::Duration};

use crate::kith::{finish_within, is_slow_asked_for, program, python_with_pyg, root};

const LIMIT: Duration = Duration::from_secs(300);

#[test]
fn slow_python_loads_the_same_batches_from_anywhere() {
    if !is_slow_asked_for() {
        return;
    }
    let Some(python) = python_with_pyg() else { return };
    let temp = tempfile::tempdir().unwrap();
    let package = temp.path().join("kith");
    fs::create_dir(&package).unwrap();
    for file in fs::read_dir(root().join("sampler/python/kith")).unwrap().map(Result::unwrap) {
        if file.path().is_file() {
            fs::copy(file.path(), package.join(file.file_name())).unwrap();
        }
    }
    fs::copy(program().with_file_name("lib_kith.so"), package.join("_kith.abi3.so")).expect("`cargo build` made it");
    let mut command = Command::new(python);
    command.arg(root().join("sampler/python/tests/loaders.py"));
    command.args([program().to_path_buf(), program().with_file_name("kith-sampler")]);
    command.env("PYTHONPATH", temp.path()).env("PYTHONDONTWRITEBYTECODE", "1");
    let ran = finish_within(&mut command, LIMIT);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(ran.stdout.lines().filter(|line| line.starts_with("ok ")).count(), 10, "{}", ran.stdout);
}
