//! `baton`: observability and evaluation for agent handoffs.

// The command line is where things are printed.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod cli;
#[cfg(feature = "cluster")]
mod cluster;
mod collect;
mod compare;
mod emit;
mod eval;
mod explain;
mod generate;
mod import;
mod keep;
mod label;
mod measures;
mod output;
mod pages;
mod sample;
mod serve;
mod source;
mod sql;
mod target;
mod terminal;
mod whatif;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::terminal::Terminal;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is done.
    Done,
    /// Done, with input that could not be read.
    Unread,
    /// Done, and a gate failed.
    Failed,
    /// Done, and a gate has not enough data.
    NotEnoughData,
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
    terminal::set(Terminal { quiet: cli.quiet, verbose: cli.verbose, color: cli.color });
    let config = source::config(cli.config.as_deref())?;
    match cli.command {
        Command::Eval(a) => eval::run(&a, config),
        Command::Compare(a) => compare::run(&a, config),
        Command::Import(a) => import::run(&a, config),
        Command::Collect(a) => collect::run(&a, config),
        Command::Serve(a) => serve::run(&a, config),
        Command::Up(a) => serve::up(&a, config),
        Command::Compact(a) => keep::compact(&a),
        Command::Retain(a) => keep::retain(&a),
        Command::Check(a) => keep::check(&a),
        #[cfg(feature = "cluster")]
        Command::Cluster(a) => cluster::run(&a),
        Command::Explain(a) => explain::run(&a, config),
        Command::Sql(a) => sql::run(&a, config),
        Command::Whatif(a) => whatif::run(&a, config),
        Command::Sample(a) => sample::run(&a, config),
        Command::Label(a) => label::run(&a, config),
        Command::Generate(a) => generate::run(&a, config),
        Command::Measures(a) => measures::run(&a),
        Command::Completions(a) => pages::completions(&a),
        Command::Man(a) => pages::man(&a),
    }
}

/// Reads the command line. Its own errors and help also follow `--color`, which is therefore looked for before.
fn parse() -> Result<Cli, clap::Error> {
    let args: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let next = args.iter().position(|a| a == "--color").and_then(|i| args.get(i + 1).map(String::as_str));
    let color = args.iter().find_map(|a| a.strip_prefix("--color=")).or(next);
    let color = color.and_then(|c| c.parse().ok()).unwrap_or_default();
    Cli::from_arg_matches(&Cli::command().color(color).try_get_matches()?)
}

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(c) => c,
        Err(e) => e.exit(),
    };
    match run(cli) {
        Ok(Exit::Done) => ExitCode::SUCCESS,
        Ok(Exit::Failed) => ExitCode::from(1),
        Ok(Exit::Unread) => ExitCode::from(3),
        Ok(Exit::NotEnoughData) => ExitCode::from(4),
        // Whoever reads the output has seen enough.
        Err(e) if is_broken_pipe(&e) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {}", told(&e));
            ExitCode::from(if e.is::<Usage>() { 2 } else { 1 })
        }
    }
}

/// An error with its causes. Many errors hold the words of their cause already.
fn told(e: &anyhow::Error) -> String {
    let mut out = String::new();
    for cause in e.chain().map(ToString::to_string) {
        if out.is_empty() {
            out = cause;
        } else if !out.contains(&cause) {
            out.push_str(": ");
            out.push_str(&cause);
        }
    }
    out
}

fn is_broken_pipe(e: &anyhow::Error) -> bool {
    e.chain().any(|c| {
        c.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}
