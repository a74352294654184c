//! `baton`: observability and evaluation for agent handoffs.

// The command line is where things are printed.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod collect;
mod eval;
mod explain;
mod generate;
mod import;
mod keep;
mod label;
mod measures;
mod sample;
mod source;
mod sql;
mod whatif;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is done.
    Done,
    /// Done, with input that could not be read.
    Unread,
}

/// Wrong usage or configuration.
#[derive(Debug)]
pub(crate) struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    let config = source::config(cli.config.as_deref())?;
    match cli.command {
        Command::Eval(a) => eval::run(&a, config),
        Command::Import(a) => import::run(&a, config),
        Command::Collect(a) => collect::run(&a, config),
        Command::Compact(a) => keep::compact(&a),
        Command::Retain(a) => keep::retain(&a),
        Command::Check(a) => keep::check(&a),
        Command::Explain(a) => explain::run(&a, config),
        Command::Sql(a) => sql::run(&a, config),
        Command::Whatif(a) => whatif::run(&a, config),
        Command::Sample(a) => sample::run(&a, config),
        Command::Label(a) => label::run(&a, config),
        Command::Generate(a) => generate::run(&a, config),
        Command::Measures(a) => measures::run(&a),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Unread) => ExitCode::from(3),
        // Whoever reads the output has seen enough.
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(if e.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|c| {
        c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
