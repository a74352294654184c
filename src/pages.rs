//! `baton completions` and `baton man`: made from the same description of the command line that reads it.

use std::io;

use anyhow::Result;
use clap::CommandFactory;

use crate::cli::{Cli, Completions, Man};
use crate::{Exit, Usage};

/// Prints what a shell needs to complete commands.
pub(crate) fn completions(args: &Completions) -> Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "baton", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(Exit::Done)
}

/// Prints a manual page.
pub(crate) fn man(args: &Man) -> Result<Exit> {
    let mut all = Cli::command();
    // Passes what holds for all subcommands on to them.
    all.build();
    let page = match &args.command {
        None => all,
        Some(name) => match all.find_subcommand(name) {
            Some(c) => c.clone(),
            None => return Err(Usage(format!("no subcommand is called {name}")).into()),
        },
    };
    clap_mangen::Man::new(page).render(&mut io::stdout().lock())?;
    Ok(Exit::Done)
}
