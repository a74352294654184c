//! What the sender's context held, what the receiver saw, what leaked (METRICS.md section 2).

use foldhash::{HashMap, HashSet};

use baton_record::prints::{identifiers, is_strong};
use baton_record::schema::{ItemRef, PayloadRef, unpack_u32, unpack_u64};
use baton_record::span::{ItemKind, Speaker};

use super::calls::Call;
use super::inference::Inference;
use super::transfers::Transfer;

/// Counts of both sides, and why one is unknown.
#[derive(Debug, Default, Clone)]
pub(super) struct Context {
    pub items_before: Option<i64>,
    pub items_after: Option<i64>,
    pub tokens_before: Option<i64>,
    pub tokens_after: Option<i64>,
    pub filtered: Option<i64>,
    pub filtered_results: Option<i64>,
    pub added: Option<i64>,
    pub duplicates: Option<i64>,
    pub retold: Option<i64>,
    pub before_unknown: Option<&'static str>,
    pub after_unknown: Option<&'static str>,
}

/// Why the items of a model call's input are not all known.
pub(super) fn view_unknown(inf: Option<&Inference<'_>>) -> Option<&'static str> {
    let Some(f) = inf else { return Some("no model call is recorded") };
    if f.input.is_none() {
        return Some("content not captured");
    }
    if f.view.hidden {
        return Some("a server-managed conversation hides earlier items");
    }
    if f.view.lossy {
        return Some("the convention drops tool items or instructions");
    }
    if f.view.cut {
        return Some("content cut off");
    }
    None
}

/// The sender's context: input and output of its model call.
fn before_items<'f, 'a>(f: &'f Inference<'a>) -> Option<Vec<&'f ItemRef<'a>>> {
    let (input, output) = (f.input.as_ref()?, f.output.as_ref()?);
    Some(input.iter().chain(output.iter().filter(|i| i.kind != ItemKind::Instructions)).collect())
}

/// Compares both sides of a transfer.
pub(super) fn compare(infs: &[Inference<'_>], t: &Transfer<'_>, receiver: Option<usize>) -> Context {
    let sender = t.sender.map(|k| &infs[k]);
    let receiver = receiver.map(|k| &infs[k]);
    let mut c = Context {
        before_unknown: view_unknown(sender),
        after_unknown: view_unknown(receiver),
        ..Context::default()
    };
    let before = sender.filter(|_| c.before_unknown.is_none()).and_then(before_items);
    if before.is_none() && c.before_unknown.is_none() {
        c.before_unknown = Some("the sender's output is not captured");
    }
    let after: Option<Vec<&ItemRef<'_>>> = receiver
        .filter(|_| c.after_unknown.is_none())
        .and_then(|f| f.input.as_ref())
        .map(|v| v.iter().collect());
    let tokens = |v: &[&ItemRef<'_>]| v.iter().map(|i| i.tokens().map(i64::from)).sum::<Option<i64>>();
    if let Some(b) = &before {
        c.items_before = Some(b.len() as i64);
        c.tokens_before = tokens(b);
    }
    if let Some(a) = &after {
        c.items_after = Some(a.len() as i64);
        c.tokens_after = tokens(a);
        c.retold = Some(a.iter().filter(|i| i.retold()).count() as i64);
        c.duplicates = duplicates(a);
    }
    if let (Some(b), Some(a)) = (&before, &after)
        && b.iter().chain(a).all(|i| i.hash.is_some())
    {
        let added = added(b, a);
        let common = (a.len() - added.len()) as i64;
        c.filtered = Some(b.len() as i64 - common);
        c.added = Some(added.len() as i64);
        let kept = results(a.iter().copied()) - results(&added);
        c.filtered_results = Some(results(b.iter().copied()) - kept);
    }
    // What the sender's own tracing measured goes before what is inferred.
    if let Some(h) = t.explicit {
        c.items_before = h.items_before().or(c.items_before);
        c.items_after = h.items_after().or(c.items_after);
        c.tokens_before = h.tokens_before().or(c.tokens_before);
        c.tokens_after = h.tokens_after().or(c.tokens_after);
        c.filtered = h.filtered().or(c.filtered);
    }
    if c.items_before.is_some() {
        c.before_unknown = None;
    }
    if c.items_after.is_some() {
        c.after_unknown = None;
    }
    c
}

fn results<'r, 'a: 'r>(items: impl IntoIterator<Item = &'r ItemRef<'a>>) -> i64 {
    items.into_iter().filter(|i| i.kind == ItemKind::Result).count() as i64
}

/// Items of after that are not in before. One that is blanked in place stands on neither side.
pub(super) fn added<'a>(b: &[&ItemRef<'a>], a: &[&ItemRef<'a>]) -> Vec<ItemRef<'a>> {
    let mut left: HashMap<(ItemKind2, Option<i64>), i64> = HashMap::default();
    for i in b.iter().filter(|i| !i.blanked) {
        *left.entry((ItemKind2::of(i), i.hash)).or_default() += 1;
    }
    let mut is_new = |i: &ItemRef<'_>| match left.get_mut(&(ItemKind2::of(i), i.hash)).filter(|n| **n > 0) {
        Some(n) if !i.blanked => {
            *n -= 1;
            false
        }
        _ => true,
    };
    a.iter().filter(|i| is_new(i)).map(|i| **i).collect()
}

/// The kind for comparing: who says a text does not matter (frameworks re-attribute turns).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ItemKind2 {
    Text,
    Call,
    Result,
}

impl ItemKind2 {
    fn of(i: &ItemRef<'_>) -> Self {
        match i.kind {
            ItemKind::Call => Self::Call,
            ItemKind::Result => Self::Result,
            _ => Self::Text,
        }
    }
}

/// Extra copies of an earlier item. Two calls of one form with two ids are two calls, and so are their results.
fn duplicates(a: &[&ItemRef<'_>]) -> Option<i64> {
    let mut n = 0;
    for (k, i) in a.iter().enumerate() {
        i.hash?;
        n += i64::from(a[..k].iter().any(|e| {
            e.hash == i.hash
                && ItemKind2::of(e) == ItemKind2::of(i)
                && (e.kind == ItemKind::Text
                    || e.call_id == i.call_id
                    || e.call_id.is_none()
                    || i.call_id.is_none())
                && (e.kind != ItemKind::Text || e.speaker == i.speaker)
        }));
    }
    Some(n)
}

/// One leak.
#[derive(Debug, Clone)]
pub(super) struct Leak {
    pub call: usize,
    pub item: i64,
    pub overlap: Vec<String>,
}

/// Shared three-word runs that show a quotation.
const QUOTED: usize = 4;

/// Tool output or arguments that were filtered out of the receiver's view and survive in its prose.
/// `Err`: why that cannot be known.
pub(super) fn leaks(
    infs: &[Inference<'_>],
    calls: &[Call<'_>],
    t: &Transfer<'_>,
    receiver: Option<usize>,
    context: &Context,
) -> Result<Vec<Leak>, &'static str> {
    let (Some(sender), Some(receiver)) = (t.sender.map(|k| &infs[k]), receiver.map(|k| &infs[k])) else {
        return Err("no model call is recorded");
    };
    if let Some(why) =
        view_unknown(Some(receiver)).or_else(|| view_unknown(Some(sender))).or(context.after_unknown)
    {
        return Err(why);
    }
    if receiver.view.masked || sender.view.masked {
        return Err("masked by the instrumentation");
    }
    let Some(before) = before_items(sender) else { return Err("the sender's output is not captured") };
    let Some(after) = &receiver.input else { return Err("content not captured") };
    let may_leak =
        |i: &ItemRef<'_>| i.kind == ItemKind::Text && i.speaker != Speaker::User && !i.blanked && !i.retold();
    if !after.iter().any(may_leak) {
        return Ok(Vec::new());
    }
    let survives = |i: &ItemRef<'_>| {
        after.iter().any(|a| {
            !a.blanked
                && ItemKind2::of(a) == ItemKind2::of(i)
                && (a.hash == i.hash || (a.call_id.is_some() && a.call_id == i.call_id))
        })
    };
    // What is no leak wherever it stands: the user's words, the payload, items that are still there.
    let mut known_idents: Vec<u64> = Vec::new();
    let mut known_shingles: Vec<u32> = Vec::new();
    let mut allow = |idents: &[u8], shingles: &[u8]| {
        known_idents.extend(unpack_u64(idents));
        known_shingles.extend(unpack_u32(shingles));
    };
    for i in before.iter().copied().chain(after).filter(|i| {
        (i.kind == ItemKind::Text && i.speaker == Speaker::User && !i.retold())
            || (i.kind != ItemKind::Text
                && !i.blanked
                && after.iter().any(|a| a.hash == i.hash && ItemKind2::of(a) == ItemKind2::of(i)))
    }) {
        allow(i.idents(), i.shingles());
    }
    for i in sender.instructions.iter().chain(&receiver.instructions) {
        allow(i.idents(), i.shingles());
    }
    for p in &t.payloads {
        allow(p.idents(), p.shingles());
    }
    known_idents.sort_unstable();
    known_shingles.sort_unstable();
    let mut out = Vec::new();
    let ids: HashSet<&str> = before.iter().filter_map(|i| i.call_id).collect();
    let hashes: HashSet<i64> = before.iter().filter_map(|i| i.hash).collect();
    let holds = |i: &ItemRef<'_>| i.hash.is_some_and(|h| hashes.contains(&h));
    for (c, call) in calls.iter().enumerate() {
        if Some(c) == t.call || call.order > t.time {
            continue;
        }
        // Most calls of a long task are in no item of this context.
        if !call.call_id.is_some_and(|id| ids.contains(id))
            && !call.item.as_ref().is_some_and(holds)
            && !call.results.iter().any(holds)
        {
            continue;
        }
        // Its items in the sender's context, and whether all of them are gone from the receiver's.
        let own: Vec<&ItemRef<'_>> = before.iter().copied().filter(|i| belongs(i, call)).collect();
        let gone: Vec<&&ItemRef<'_>> = own.iter().filter(|i| !survives(i)).collect();
        if gone.is_empty() {
            continue;
        }
        let mut idents: Vec<u64> = gone
            .iter()
            .flat_map(|i| unpack_u64(i.idents()))
            .filter(|h| is_strong(*h) && known_idents.binary_search(h).is_err())
            .collect();
        let mut shingles: Vec<u32> = gone
            .iter()
            .flat_map(|i| unpack_u32(i.shingles()))
            .filter(|h| known_shingles.binary_search(h).is_err())
            .collect();
        idents.sort_unstable();
        shingles.sort_unstable();
        for (pos, prose) in after.iter().enumerate() {
            if !may_leak(prose) {
                continue;
            }
            let hit = unpack_u64(prose.idents()).any(|h| idents.binary_search(&h).is_ok());
            let quoted = || {
                unpack_u32(prose.shingles()).filter(|h| shingles.binary_search(h).is_ok()).count() >= QUOTED
            };
            if hit || quoted() {
                out.push(Leak { call: c, item: pos as i64, overlap: overlap(&gone, prose, &t.payloads) });
            }
        }
    }
    Ok(out)
}

/// Whether an item of a context is the request or the result of a call: by its id, and by content where one of the two has
/// none.
fn belongs(i: &ItemRef<'_>, call: &Call<'_>) -> bool {
    if let (Some(a), Some(b)) = (i.call_id, call.call_id) {
        return a == b && i.kind != ItemKind::Text;
    }
    match i.kind {
        ItemKind::Call => i.hash.is_some() && i.hash == call.item.and_then(|x| x.hash),
        ItemKind::Result => i.hash.is_some() && call.results.iter().any(|r| r.hash == i.hash),
        _ => false,
    }
}

/// What both texts hold, for people; only where content is kept.
fn overlap(gone: &[&&ItemRef<'_>], prose: &ItemRef<'_>, payloads: &[PayloadRef<'_>]) -> Vec<String> {
    let Some(prose) = prose.text().map(identifiers) else { return Vec::new() };
    let source: Vec<String> = gone.iter().filter_map(|i| i.text()).flat_map(identifiers).collect();
    let said: Vec<String> = payloads.iter().filter_map(|p| p.text()).flat_map(identifiers).collect();
    let mut out: Vec<String> =
        prose.into_iter().filter(|p| source.contains(p) && !said.contains(p)).collect();
    out.sort();
    out.dedup();
    out
}
