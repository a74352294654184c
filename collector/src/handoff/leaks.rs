//! Whether what a filter removed survives in prose (METRICS.md section 2, leaks).

use baton_record::config::Tokenizer;
use baton_record::prints::{PrintKey, identifiers, is_strong};
use baton_record::span::{Item, ItemKind, Speaker};
use foldhash::{HashMap, HashSet};

use super::history::{History, all_items};

/// Shared three-word runs that show a quotation.
const QUOTED: usize = 4;

/// Output or arguments of a tool call whose own items were filtered out, and that a text still tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leak {
    /// The tool, where it is named.
    pub tool: Option<String>,
    /// The call.
    pub call_id: Option<String>,
    /// Index of the message in the receiver's history that tells it.
    pub message: usize,
    /// Identifiers, in lower case, that both hold and the payload does not. May be empty where words are quoted.
    pub overlap: Vec<String>,
}

/// Finds them, one for each call and each message that tells of it.
///
/// `before` is the sender's history, `after` the receiver's, `payload` what is handed over beside it, as text or JSON. No leak is what
/// the user, the payload or the instructions say, what stands in a tool item that is still there, and a transcript that is told
/// again as a whole.
pub fn leaks(before: &History, after: &History, payload: &str) -> Vec<Leak> {
    let (was, is) = (all_items(before, Tokenizer::default()), all_items(after, Tokenizer::default()));
    let message_of: Vec<usize> =
        after.messages.iter().enumerate().flat_map(|(i, m)| m.parts.iter().map(move |_| i)).collect();
    let may_leak =
        |i: &Item| i.kind == ItemKind::Text && i.speaker != Speaker::User && !i.blanked && !i.retold;
    if !is.iter().any(may_leak) {
        return Vec::new();
    }
    let still: HashSet<_> = is.iter().filter(|i| !i.blanked).map(|i| (i.kind, i.hash)).collect();
    let answered: HashSet<_> =
        is.iter().filter(|i| !i.blanked).filter_map(|i| Some((i.kind, i.call_id.as_deref()?))).collect();
    let equal_in_after = |i: &Item| still.contains(&(i.kind, i.hash));
    let survives = |i: &Item| {
        equal_in_after(i) || i.call_id.as_deref().is_some_and(|id| answered.contains(&(i.kind, id)))
    };
    let mut idents: HashSet<u64> = HashSet::default();
    let mut shingles: HashSet<u32> = HashSet::default();
    let mut allow = |prints: &baton_record::prints::Prints| {
        idents.extend(&prints.idents);
        shingles.extend(&prints.shingles);
    };
    for i in was.iter().chain(&is) {
        let said_anyway = match i.kind {
            ItemKind::Instructions => true,
            ItemKind::Text => i.speaker == Speaker::User && !i.retold,
            ItemKind::Call | ItemKind::Result => !i.blanked && equal_in_after(i),
        };
        if said_anyway {
            allow(&i.prints);
        }
    }
    allow(&PrintKey::default().prints(payload));
    let said: Vec<String> = identifiers(payload);

    // Which calls each print tells of, so that a text costs what it holds, however many calls were removed.
    let calls: Vec<Call> = calls(&was, survives);
    let mut strong: HashMap<u64, Vec<usize>> = HashMap::default();
    let mut words: HashMap<u32, Vec<usize>> = HashMap::default();
    for (at, call) in calls.iter().enumerate() {
        let prints = || call.gone.iter().map(|i| &i.prints);
        let ids: HashSet<u64> = prints().flat_map(|p| p.idents.iter().copied()).collect();
        let runs: HashSet<u32> = prints().flat_map(|p| p.shingles.iter().copied()).collect();
        for h in ids.into_iter().filter(|h| is_strong(*h) && !idents.contains(h)) {
            strong.entry(h).or_default().push(at);
        }
        for h in runs.into_iter().filter(|h| !shingles.contains(h)) {
            words.entry(h).or_default().push(at);
        }
    }
    let mut told: Vec<(usize, usize)> = Vec::new();
    for (pos, prose) in is.iter().enumerate().filter(|(_, i)| may_leak(i)) {
        let named = prose.prints.idents.iter().filter_map(|h| strong.get(h)).flatten().copied();
        let mut quoted: HashMap<usize, usize> = HashMap::default();
        for at in prose.prints.shingles.iter().filter_map(|h| words.get(h)).flatten() {
            *quoted.entry(*at).or_default() += 1;
        }
        let quoted = quoted.into_iter().filter(|(_, n)| *n >= QUOTED).map(|(at, _)| at);
        told.extend(named.chain(quoted).map(|at| (at, pos)));
    }
    told.sort_unstable();
    told.dedup();
    told.into_iter()
        .map(|(at, pos)| Leak {
            tool: calls[at].tool.map(Into::into),
            call_id: calls[at].call_id.map(Into::into),
            message: message_of.get(pos).copied().unwrap_or_default(),
            overlap: overlap(&calls[at].gone, &is[pos], &said),
        })
        .collect()
}

/// A tool call of the sender's history.
#[derive(Default)]
struct Call<'a> {
    tool: Option<&'a str>,
    call_id: Option<&'a str>,
    /// Its request and results that the receiver did not get.
    gone: Vec<&'a Item>,
}

/// The calls: request and results joined by id. Items without one stand alone.
fn calls(items: &[Item], survives: impl Fn(&Item) -> bool) -> Vec<Call<'_>> {
    let mut out: Vec<Call> = Vec::new();
    let mut by_id: HashMap<&str, usize> = HashMap::default();
    for i in items.iter().filter(|i| matches!(i.kind, ItemKind::Call | ItemKind::Result)) {
        let at = match i.call_id.as_deref() {
            Some(id) => *by_id.entry(id).or_insert(out.len()),
            None => out.len(),
        };
        if at == out.len() {
            out.push(Call { call_id: i.call_id.as_deref(), ..Call::default() });
        }
        out[at].tool = out[at].tool.or(i.name.as_deref());
        if !survives(i) {
            out[at].gone.push(i);
        }
    }
    out
}

fn overlap(gone: &[&Item], prose: &Item, said: &[String]) -> Vec<String> {
    let source: HashSet<String> =
        gone.iter().filter_map(|i| i.text.as_deref()).flat_map(identifiers).collect();
    let mut out = identifiers(prose.text.as_deref().unwrap_or_default());
    out.retain(|p| source.contains(p) && !said.contains(p));
    out.sort();
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::super::filter::Filter;
    use super::*;
    use serde_json::json;

    fn before(prose: &str) -> History {
        History::from_value(&json!([
            {"role": "system", "content": "You triage. Desk 5501-A."},
            {"role": "user", "content": "Where is my order ORD-4711?"},
            {"role": "assistant", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "payment_log", "arguments": "{\"order\":\"ORD-4711\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "{\"auth\":\"pay_7F3M9Q\",\"desk\":\"5501-A\",\"note\":\"the second capture was voided by the acquirer on Monday\"}"},
            {"role": "assistant", "content": prose},
        ]))
    }

    fn found(prose: &str, filters: &[Filter], payload: &str) -> Vec<Leak> {
        let before = before(prose);
        leaks(&before, &before.filtered(filters).history, payload)
    }

    #[test]
    fn an_identifier_of_a_removed_result_in_prose_is_a_leak() {
        let l = found("I see pay_7F3M9Q.", &[Filter::RemoveTools], "");
        assert_eq!(l.len(), 1);
        assert_eq!(
            (l[0].tool.as_deref(), l[0].call_id.as_deref(), l[0].message),
            (Some("payment_log"), Some("c1"), 2)
        );
        assert_eq!(l[0].overlap, ["pay_7f3m9q"]);
    }

    #[test]
    fn a_quotation_is_a_leak_and_a_few_words_are_none() {
        let quote = "As I see the second capture was voided by the acquirer on Monday.";
        assert_eq!(found(quote, &[Filter::RemoveTools], "").len(), 1);
        assert!(found("The second capture is fine.", &[Filter::RemoveTools], "").is_empty());
    }

    #[test]
    fn what_is_known_otherwise_is_no_leak() {
        // Nothing was removed; the user said it; the instructions do; the payload does.
        assert!(found("I see pay_7F3M9Q.", &[], "").is_empty());
        assert!(found("About ORD-4711.", &[Filter::RemoveTools], "").is_empty());
        assert!(found("Ask desk 5501-A.", &[Filter::RemoveTools], "").is_empty());
        assert!(
            found("I see pay_7F3M9Q.", &[Filter::RemoveTools], r#"{"evidence":["pay_7F3M9Q"]}"#).is_empty()
        );
        // Told again as a transcript.
        let told = "For context: [Triage] called tool payment_log, it said pay_7F3M9Q";
        assert!(found(told, &[Filter::RemoveTools], "").is_empty());
    }

    #[test]
    fn a_result_that_was_blanked_is_gone_and_one_that_lost_a_field_is_still_there() {
        let blank = Filter::OnlyFields(vec!["nothing".into()]);
        let still = Filter::OnlyFields(vec!["note".into()]);
        let prose = "I see pay_7F3M9Q.";
        // Objects lose all their fields but stay objects; a text has none, so it is blanked.
        assert!(found(prose, std::slice::from_ref(&blank), "").is_empty());
        assert!(found(prose, &[still], "").is_empty());
        let mut text = before(prose);
        for p in text.messages.iter_mut().flat_map(|m| &mut m.parts) {
            if let crate::messages::Part::Result { content, .. } = p {
                *content = json!("The authorisation is pay_7F3M9Q");
            }
        }
        assert_eq!(leaks(&text, &text.filtered(&[blank]).history, "").len(), 1);
    }
}
