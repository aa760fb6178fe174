//! `kith completions`.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::answer::print;

/// Print a shell script that completes commands and options.
#[derive(clap::Args)]
#[command(after_help = "\
bash:  source <(kith completions bash)
zsh:   kith completions zsh > \"${fpath[1]}/_kith\"
fish:  kith completions fish > ~/.config/fish/completions/kith.fish")]
pub struct Args {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut script = Vec::new();
    generate(args.shell, &mut crate::Args::command(), "kith", &mut script);
    print(&String::from_utf8_lossy(&script))
}
