//! `baton measures`.

use anyhow::Result;
use baton_analyzer::measures::{self, ALL, Measure};
use baton_analyzer::report::document::{Document, Section, Table};

use crate::cli::{ListFormat, Measures};
use crate::{Exit, Usage};

/// Lists the measures, or shows one.
pub(crate) fn run(args: &Measures) -> Result<Exit> {
    if let Some(name) = &args.name {
        let Some(m) = Measure::by_name(name) else {
            return Err(Usage(format!("no measure is called {name}; `baton measures` lists them")).into());
        };
        println!(
            "{} ({}, good: {})\n{}\n\n{}",
            m.name,
            m.unit,
            m.direction.name(),
            m.description,
            m.sql.trim_end()
        );
        return Ok(Exit::Done);
    }
    if args.format == ListFormat::Json {
        println!("{}", measures::json());
        return Ok(Exit::Done);
    }
    let rows = ALL
        .iter()
        .map(|m| {
            vec![
                m.name.to_owned(),
                m.unit.to_owned(),
                m.direction.name().to_owned(),
                m.description.to_owned(),
            ]
        })
        .collect();
    let table = Table { head: vec!["measure", "unit", "good", "what it says"], rows };
    let section = Section { title: String::new(), lines: Vec::new(), table: Some(table) };
    print!("{}", Document { title: "Measures".to_owned(), sections: vec![section] }.terminal());
    Ok(Exit::Done)
}
