//! The container images: built without a registry, and used for training. Slow; needs root and the tools.

use std::{process::Command, time::Duration};

use crate::kith::{finish_within, is_slow_asked_for, program, root};

#[test]
#[allow(clippy::print_stderr)]
fn slow_images_are_built_and_train() {
    if !is_slow_asked_for() {
        return;
    }
    program(); // Builds it.
    // After SIGTERM, the script removes everything it made.
    let mut command = Command::new("timeout");
    command.args(["--foreground", "--signal", "TERM", "--kill-after", "150", "600"]);
    let finished = finish_within(command.arg(root().join("deploy/images/try.sh")), Duration::from_secs(800));
    if finished.code == Some(77) {
        eprintln!("{}", finished.stdout);
        return;
    }
    assert_eq!(finished.code, Some(0), "{}\n{}", finished.stdout, finished.stderr);
    for words in ["the same", "codes 0, 0 and 75", "all as expected"] {
        assert!(finished.stdout.contains(words), "no \"{words}\": {}", finished.stdout);
    }
}
