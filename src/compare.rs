//! `baton compare`.

use std::io::Write;

use anyhow::Result;
use baton_analyzer::compare::{LEVELS, Side, compare};
use baton_analyzer::measures::{ALL, Measure};
use baton_analyzer::report::comparison;
use baton_record::config::Config;

use crate::cli::{Compare, Sheet};
use crate::output::Output;
use crate::{Exit, Usage, source, terminal};

/// Compares two runs.
pub(crate) fn run(args: &Compare, config: Config) -> Result<Exit> {
    if !LEVELS.contains(&args.level) {
        let (least, most) = (LEVELS.start(), LEVELS.end());
        return Err(Usage(format!("--level {}: must be from {least} to {most}", args.level)).into());
    }
    let mut measures: Vec<&Measure> = Vec::new();
    for name in &args.measures {
        measures.push(
            Measure::by_name(name)
                .ok_or_else(|| Usage(format!("no measure is called {name}; `baton measures` lists them")))?,
        );
    }
    if measures.is_empty() {
        measures.extend(ALL);
    }
    // A place that cannot be written to is told before the work.
    let mut out = Output::open(args.output.as_deref())?;
    source::block_on(async {
        let (a, of_a) = source::named(&args.a, config.clone()).await?;
        let (b, of_b) = source::named(&args.b, config).await?;
        let [x, y] = [(&a, &of_a), (&b, &of_b)]
            .map(|(o, service)| Side { session: &o.session, service: service.as_deref() });
        let c = compare(x, y, &measures, args.level).await?;
        let names = [args.a.as_str(), args.b.as_str()];
        let text = match args.format {
            Sheet::Terminal => terminal::text(&comparison::document(&c, names), args.output.is_some()),
            Sheet::Markdown => comparison::document(&c, names).markdown(),
            Sheet::Json => format!("{}\n", comparison::document_json(&c, names)),
        };
        out.write_all(text.as_bytes())?;
        out.finish()?;
        Ok(if a.exit() == Exit::Done { b.exit() } else { a.exit() })
    })
}
