//! `kith export`: writes the weights of a trained model to a file.

use kith_bucket::Wanted;
use kith_cli::{answer::print, export::Args, progress::say, pulled::local};
use kith_trainer::{
    engine::device::{self, Device},
    inference::predict::{find_checkpoint, model_of},
    output::interchange,
};

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    device::start();
    let checkpoint = find_checkpoint(&local(&args.run, &Wanted::All)?)?;
    checkpoint.warning().iter().for_each(|warning| say(&format!("warning: {warning}")));
    let (config, model) = model_of(&checkpoint, args.weights, Device::Cpu)?;
    match args.to.as_str() {
        "pyg" => interchange::save(&model, &args.out)?,
        _ => interchange::save_named(&model, &args.out)?,
    }
    let n_weights = model.weights().n_elements();
    print(&format!("{}: {n_weights} weights of a {}\n", args.out.display(), config.name()))
}
