//! What the command line takes.

use std::net::SocketAddr;
use std::path::PathBuf;

use baton_analyzer::compare::LEVEL;
use baton_analyzer::engine::Engine;
use baton_collector::live::ingest::Packing;
use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::generate::{Profile, Regression};

/// Observability and evaluation for agent handoffs.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Configuration; without it `baton.toml` of the working folder, where there is one.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// No progress and no notes; errors, and what could not be read, are still told.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say on standard error what is done and how long it takes.
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
    /// When to use colour; `auto`: on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = ColorChoice::Auto)]
    pub(crate) color: ColorChoice,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Evaluate recorded runs, or a store, and print the handoff report.
    #[command(after_help = EVAL)]
    Eval(Eval),
    /// Compare two runs: by how much each measure differs, and whether that is more than chance.
    #[command(after_help = COMPARE)]
    Compare(Compare),
    /// Keep recorded runs in a store for later `eval`, `explain` and `sql`.
    #[command(after_help = EXITS)]
    Import(Import),
    /// Receive OTLP from running agents and keep it in a store.
    #[command(after_help = COLLECT)]
    Collect(Collect),
    /// Answer SQL over a store, as a Postgres server that only reads.
    #[command(after_help = SERVE)]
    Serve(Serve),
    /// Receive OTLP and answer SQL in one process: `collect` and `serve` over one store.
    #[command(after_help = SERVE)]
    Up(Up),
    /// Merge small files of a store's past hours.
    Compact(Compact),
    /// Remove what is older than a time.
    Retain(Retain),
    /// Verify a store: every file readable, nothing doubled, nothing left over.
    Check(Check),
    /// Tell the story of one task or handoff.
    #[command(after_help = EXITS)]
    Explain(Explain),
    /// Ask in SQL over the tables: tasks, agent_runs, inferences, tool_calls, handoffs, handoff_constraints, leaks,
    /// run_constraints, evaluations, rule_checks, violations, findings, measure_sums, handoff_scores, labels, spans.
    #[command(after_help = EXITS)]
    Sql(Sql),
    /// Say what another history filter would have passed on recorded transfers.
    #[command(after_help = FILTERS)]
    Whatif(Whatif),
    /// Draw transfers for people to review: the same store and seed give the same ones.
    #[command(after_help = EXITS)]
    Sample(Sample),
    /// Keep the labels of a reviewed sample, and say how well the automatic verdicts agree with them.
    Label(Label),
    /// Make up runs of agents whose truth is known, to measure speed and check numbers at scale.
    Generate(Generate),
    /// List the measures, or show one with its SQL.
    Measures(Measures),
    /// Run a process of a cluster on which `eval --engine` evaluates.
    #[cfg(feature = "cluster")]
    #[command(subcommand)]
    Cluster(Cluster),
    /// Print the completions of a shell.
    Completions(Completions),
    /// Print the manual page, as roff for `man`.
    Man(Man),
}

const COLLECT: &str = "Limits, TLS, tokens, durability and retention are set in [collect] of baton.toml. SIGTERM ends it in order.";

const SERVE: &str = "Users, TLS and limits are set in [serve] of baton.toml, the collector in [collect]. SIGTERM ends it in order.";

const FILTERS: &str = "Steps, one after the other:
  remove_tools       tool calls and tool results go
  last_n=N           the newest N items stay: one text, one tool call, one result each
  last_turns=N       the last N turns stay; a turn begins with a message of the user
  budget=N           the newest items stay that have at most N tokens together
  only_fields=A|B    of arguments and results that are JSON, these fields stay
  redact=REGEX       what matches is replaced; takes the rest of its --filter, commas included
Instructions always stay. A result whose call is gone goes too.

Exit codes: 0 done; 1 failed; 2 wrong usage or configuration; 3 done, but part of the input could not be read.";

const EXITS: &str = "Exit codes: 0 done; 1 failed; 2 wrong usage or configuration; 3 done, but part of the input could not be read.";

const EVAL: &str = "Exit codes: 0 done, and every gate passed; 1 failed, or a gate did; 2 wrong usage or configuration; 3 done, but part of the input \
                    could not be read; 4 done, but a gate has not enough data. Of several 1 counts most, then 3.";

const COMPARE: &str = "A and B are each a store folder, or recorded OTLP (a file, a folder, a glob). Behind it `@SINCE..UNTIL` names a window of time, in the forms \
                       of --since, and `@service=NAME` one service: baton-data@2026-11-01..2026-11-08, baton-data@7d..@service=desk.\n\
                       Exit codes: 0 done; 1 failed; 2 wrong usage or configuration; 3 done, but part of the input could not be read.";

/// Where the data comes from.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// Recorded OTLP: files, folders, globs, or `-` for standard input. Without any, the store.
    #[arg(value_name = "PATH", conflicts_with = "store")]
    pub(crate) paths: Vec<String>,
    /// Store: a folder, or the URL of one on an object store [default: baton-data].
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<PathBuf>,
}

/// Which tasks: those whose last activity lies in a window, whole also where they began before it.
#[derive(Debug, Args)]
pub(crate) struct Period {
    /// From: now, today, yesterday, 24h or 7d ago, 2026-11-28, or 2026-11-28T06:00:00Z. Days begin at midnight UTC.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) since: Option<String>,
    /// Up to, not including it; in the same forms.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) until: Option<String>,
}

/// `eval`.
#[derive(Debug, Args)]
pub(crate) struct Eval {
    #[command(flatten)]
    pub(crate) source: Source,
    #[command(flatten)]
    pub(crate) period: Period,
    /// Form of the report.
    #[arg(long, value_enum, default_value_t = Format::Terminal)]
    pub(crate) format: Format,
    /// Write to this file instead of standard output. It appears when it is whole.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Also send the scores of transfers, as `gen_ai.evaluation.result` events on their spans, to `otlp://HOST:PORT` (gRPC,
    /// not encrypted). A token is taken from BATON_TOKEN.
    #[arg(long, value_name = "URL")]
    pub(crate) emit: Option<String>,
    /// Check the gates of this file, and end with 1 where one fails, with 4 where one has not enough data.
    #[arg(long, value_name = "FILE")]
    pub(crate) gate: Option<PathBuf>,
    /// What assembles tasks and sums measures: `local`, or the executors of a cluster, `ballista://HOST:PORT`. They reach the store under the
    /// same name, so it is on an object store or in a folder that all of them share. The report is the same.
    #[arg(long, value_name = "ENGINE", default_value = "local", value_parser = Engine::parse)]
    pub(crate) engine: Engine,
}

/// `compare`.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// What is compared with.
    pub(crate) a: String,
    /// What is compared.
    pub(crate) b: String,
    /// Only these measures; without any, all.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) measures: Vec<String>,
    /// The chance of even one false alarm among all differences, where nothing changed.
    #[arg(long, value_name = "SHARE", default_value_t = LEVEL)]
    pub(crate) level: f64,
    /// Form of the report.
    #[arg(long, value_enum, default_value_t = Sheet::Terminal)]
    pub(crate) format: Sheet,
    /// Write to this file instead of standard output. It appears when it is whole.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// Recorded OTLP: files, folders, globs, or `-` for standard input.
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<String>,
    /// Store: a folder, or the URL of one on an object store.
    #[arg(long, value_name = "STORE", default_value = DEFAULT_STORE)]
    pub(crate) store: PathBuf,
}

/// `collect`.
#[derive(Debug, Args)]
pub(crate) struct Collect {
    /// Store: a folder, or the URL of one on an object store.
    #[arg(long, value_name = "STORE", default_value = DEFAULT_STORE)]
    pub(crate) store: PathBuf,
    /// Where OTLP/gRPC is listened for [default: 127.0.0.1:4317].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) grpc: Option<SocketAddr>,
    /// Where OTLP/HTTP is listened for [default: 127.0.0.1:4318].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<SocketAddr>,
    /// Folder of the journal [default: `journal` in the store].
    #[arg(long, value_name = "DIR")]
    pub(crate) journal: Option<PathBuf>,
}

/// `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Store: a folder, or the URL of one on an object store.
    #[arg(long, value_name = "STORE", default_value = DEFAULT_STORE)]
    pub(crate) store: PathBuf,
    /// Where it listens [default: 127.0.0.1:5432].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
}

/// `up`.
#[derive(Debug, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) collect: Collect,
    /// Where SQL is listened for [default: 127.0.0.1:5432].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) sql: Option<SocketAddr>,
}

/// `compact`.
#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// Store: a folder, or the URL of one on an object store.
    #[arg(long, value_name = "STORE", default_value = DEFAULT_STORE)]
    pub(crate) store: PathBuf,
    /// Also the hour that is still running.
    #[arg(long)]
    pub(crate) all: bool,
    /// Say what would be done and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `retain`.
#[derive(Debug, Args)]
pub(crate) struct Retain {
    /// Store: a folder, or the URL of one on an object store.
    #[arg(long, value_name = "STORE", default_value = DEFAULT_STORE)]
    pub(crate) store: PathBuf,
    /// How long to keep: 90d, 24h, 30m or 45s.
    #[arg(long, value_name = "TIME")]
    pub(crate) keep: String,
    /// Say what would be done and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Store: a folder, or the URL of one on an object store.
    #[arg(long, value_name = "STORE", default_value = DEFAULT_STORE)]
    pub(crate) store: PathBuf,
}

/// `cluster`.
#[cfg(feature = "cluster")]
#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// Hand out parts of evaluations to executors. One for a cluster.
    #[command(after_help = CLUSTER)]
    Scheduler(Scheduler),
    /// Work on parts of evaluations.
    #[command(after_help = CLUSTER)]
    Executor(Executor),
}

#[cfg(feature = "cluster")]
const CLUSTER: &str = "The ports of a cluster know neither passwords nor encryption: let nothing reach them but the cluster itself. All of its processes, and the \
                       evaluation, are one build of this program. SIGTERM ends an executor when its parts are done.";

/// `cluster scheduler`.
#[cfg(feature = "cluster")]
#[derive(Debug, Args)]
pub(crate) struct Scheduler {
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50050")]
    pub(crate) listen: SocketAddr,
    /// The name under which others reach it [default: the address it listens on].
    #[arg(long, value_name = "HOST")]
    pub(crate) external_host: Option<String>,
    /// Listen on other than loopback addresses.
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// `cluster executor`.
#[cfg(feature = "cluster")]
#[derive(Debug, Args)]
pub(crate) struct Executor {
    /// The scheduler.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    pub(crate) scheduler: String,
    /// Where it listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50051")]
    pub(crate) listen: SocketAddr,
    /// The name under which others reach it [default: the address it listens on].
    #[arg(long, value_name = "HOST")]
    pub(crate) external_host: Option<String>,
    /// Parts worked on at once [default: as many as there are cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) slots: Option<u16>,
    /// Memory of the query engine, for all parts together.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) memory: String,
    /// Folder for what is under way [default: a temporary one].
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
    /// Listen on other than loopback addresses.
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// `explain`.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Id of a task, a trace or a handoff, or the start of one.
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) source: Source,
    /// Form of the story.
    #[arg(long, value_enum, default_value_t = Page::Terminal)]
    pub(crate) format: Page,
}

/// `sql`.
#[derive(Debug, Args)]
pub(crate) struct Sql {
    /// The question. May begin with a comment.
    #[arg(value_name = "QUERY", allow_hyphen_values = true)]
    pub(crate) query: String,
    #[command(flatten)]
    pub(crate) source: Source,
    /// Form of the answer.
    #[arg(long, value_enum, default_value_t = Rows::Table)]
    pub(crate) format: Rows,
}

/// `whatif`.
#[derive(Debug, Args)]
pub(crate) struct Whatif {
    /// The filter: steps with commas between, as `remove_tools,last_n=6,budget=4000`. May be given again, for more steps.
    #[arg(long, value_name = "STEPS", required = true)]
    pub(crate) filter: Vec<String>,
    #[command(flatten)]
    pub(crate) source: Source,
    #[command(flatten)]
    pub(crate) period: Period,
    /// Form of the comparison.
    #[arg(long, value_enum, default_value_t = Sheet::Terminal)]
    pub(crate) format: Sheet,
}

/// `sample`.
#[derive(Debug, Args)]
pub(crate) struct Sample {
    /// How many transfers.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) n: usize,
    /// Draw evenly from groups instead of from all.
    #[arg(long, value_enum, value_name = "GROUPS")]
    pub(crate) stratify: Option<Stratify>,
    /// Draw the transfers with the most that went wrong.
    #[arg(long)]
    pub(crate) worst: bool,
    /// Another seed draws others.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) source: Source,
    #[command(flatten)]
    pub(crate) period: Period,
    /// To read, or to fill in for `baton label`.
    #[arg(long, value_enum, default_value_t = Review::Markdown)]
    pub(crate) format: Review,
}

/// Groups to draw from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stratify {
    /// Pairs of sender and receiver.
    Pair,
}

/// Forms of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Review {
    Markdown,
    Jsonl,
}

/// `label`.
#[derive(Debug, Args)]
pub(crate) struct Label {
    /// A sample as JSON lines with its `labels` filled in, or `-`. Without it only the agreement is shown.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Who labelled the lines that name no `reviewer`.
    #[arg(long, value_name = "NAME", requires = "file")]
    pub(crate) reviewer: Option<String>,
    /// Store: a folder, or the URL of one on an object store.
    #[arg(long, value_name = "STORE", default_value = DEFAULT_STORE)]
    pub(crate) store: PathBuf,
    /// Form of the agreement.
    #[arg(long, value_enum, default_value_t = Page::Terminal)]
    pub(crate) format: Page,
}

/// `generate`.
#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// About how many spans; the last task is made whole.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) spans: u64,
    /// The same seed makes the same spans.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Put them into this store, through the same reading as an import.
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    pub(crate) store: Option<PathBuf>,
    /// Write them to this file as OTLP requests, each with its length in front.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Send them to a collector: `http://ADDRESS` or `grpc://ADDRESS`. A token is taken from BATON_TOKEN.
    #[arg(long, value_name = "URL", conflicts_with_all = ["store", "output"])]
    pub(crate) to: Option<String>,
    /// What spans carry.
    #[arg(long, value_enum, default_value_t = Profile::Plain)]
    pub(crate) profile: Profile,
    /// How requests to a collector are packed.
    #[arg(long, value_enum, default_value_t = Compression::None)]
    pub(crate) compression: Compression,
    /// Connections to a collector.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) connections: usize,
    /// Spans per second to a collector; without it as fast as it answers.
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<u64>,
    /// Over how many days they are spread.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=366))]
    pub(crate) days: u64,
    /// When the last day ends, in the forms of `eval --until`; without it the first one is 2026-01-01, and the same call makes
    /// the same bytes.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) until: Option<String>,
    /// What gets worse on one day for one pair of agents: `DAY:FROM->TO:MEASURE`, the first day being 1; completeness,
    /// constraint_retention or leaks.
    #[arg(long, value_name = "CHANGE")]
    pub(crate) regression: Option<Regression>,
    /// Write what is true of them to this file as JSON, in the names of the report.
    #[arg(long, value_name = "FILE")]
    pub(crate) truth: Option<PathBuf>,
}

/// How requests are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl From<Compression> for Packing {
    fn from(c: Compression) -> Self {
        match c {
            Compression::None => Self::Plain,
            Compression::Gzip => Self::Gzip,
            Compression::Zstd => Self::Zstd,
        }
    }
}

/// `measures`.
#[derive(Debug, Args)]
pub(crate) struct Measures {
    /// Show this one with its SQL.
    #[arg(conflicts_with = "format")]
    pub(crate) name: Option<String>,
    /// Form of the list.
    #[arg(long, value_enum, default_value_t = ListFormat::Terminal)]
    pub(crate) format: ListFormat,
}

/// Forms of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// A table.
    Terminal,
    /// JSON, for programs: each measure with its subject, unit, scale, direction, description and SQL.
    Json,
}

/// `completions`.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: Shell,
}

/// `man`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Page of this subcommand; without it that of `baton`.
    #[arg(value_name = "SUBCOMMAND")]
    pub(crate) command: Option<String>,
}

/// Store folder where none is named.
pub(crate) const DEFAULT_STORE: &str = "baton-data";

/// Forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Terminal,
    Json,
    Markdown,
    Html,
    /// The gates alone, for continuous integration.
    Junit,
}

/// Forms of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sheet {
    Terminal,
    Json,
    Markdown,
}

/// Forms of a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Page {
    Terminal,
    Markdown,
}

/// Forms of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rows {
    Table,
    Csv,
    Json,
}
