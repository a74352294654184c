//! Which constraints were in force, which the receiver got, and where the others went missing
//! (METRICS.md section 2, constraint_retention).

use baton_record::prints::Prints;
use baton_record::schema::{ConstraintRef, ItemRef, PayloadRef, packed_holds, unpack_u32, unpack_u64};
use foldhash::HashMap;

use super::Rules;
use super::graph::Graph;
use super::inference::Inference;
use super::runs::Runs;
use super::transfers::Transfer;
use baton_record::span::Signal;

/// A constraint that is in force in the task.
#[derive(Debug, Clone)]
struct Active {
    id: String,
    hash: String,
    text: Option<String>,
    soft: bool,
    shingles: Vec<u32>,
    /// Durable state or a contract held it once.
    held: bool,
}

/// A constraint at one transfer.
#[derive(Debug, Clone)]
pub(super) struct At {
    pub id: String,
    pub hash: String,
    pub text: Option<String>,
    pub soft: bool,
    pub active: bool,
    /// Durable state or an earlier contract holds it.
    pub held: bool,
    pub stated: bool,
    pub in_payload: Option<bool>,
    pub in_view: Option<bool>,
    pub counted: bool,
    pub got: Option<bool>,
    pub cause: Option<&'static str>,
}

/// All constraints at one transfer, and why a retention is unknown.
#[derive(Debug, Default, Clone)]
pub(super) struct Constraints {
    pub list: Vec<At>,
    pub retention_unknown: Option<String>,
    pub payload_unknown: Option<String>,
}

/// Follows the constraints through the transfers of a task, in order.
#[derive(Default)]
pub(super) struct Tracker {
    active: Vec<Active>,
    /// Stated in transfers of the turn under way: in force for what comes after it, not for its siblings.
    stated: Vec<Active>,
    turn: Option<usize>,
    /// What receivers said they got.
    received: Option<HashMap<usize, Vec<String>>>,
    /// Ids of catalogue constraints whose patterns the view of the transfer at hand matches; `None`: as it is recorded.
    pub seen: Option<Vec<String>>,
}

impl Tracker {
    /// For views other than the recorded ones: what receivers said they got counts for nothing.
    pub(super) fn untold() -> Self {
        Self { received: Some(HashMap::default()), ..Self::default() }
    }

    /// Judges one transfer and takes over what it states.
    pub(super) fn step(
        &mut self,
        rules: &Rules,
        g: &Graph<'_>,
        runs: &Runs<'_>,
        infs: &[Inference<'_>],
        t: &Transfer<'_>,
        receiver: Option<usize>,
        payload_unknown: Option<&'static str>,
    ) -> Constraints {
        if t.sender.is_none() || t.sender != self.turn {
            for s in std::mem::take(&mut self.stated) {
                match self.active.iter_mut().find(|a| a.id == s.id || a.hash == s.hash) {
                    Some(a) => {
                        a.held = true;
                        // Durable state may name only the id.
                        if a.hash.is_empty() {
                            a.hash = s.hash;
                        }
                        if a.shingles.is_empty() {
                            a.shingles = s.shingles;
                        }
                        a.text = a.text.take().or(s.text);
                    }
                    None => self.active.push(s),
                }
            }
            self.turn = t.sender;
        }
        self.add_state(rules, t, infs);
        let receiver_inf = receiver.map(|k| &infs[k]);
        let told = self.received.get_or_insert_with(|| received(g, runs));
        let told = t.to_run.and_then(|r| told.get(&r)).cloned();
        let view_known = told.is_some()
            || receiver_inf.is_some_and(|f| f.input.is_some() && !f.view.lossy && !f.view.hidden);
        let view_cut = told.is_none() && receiver_inf.is_some_and(|f| f.view.cut || f.view.masked);
        let payload_known = payload_unknown.is_none() || t.payloads.iter().any(|p| !p.complete);
        let payload_cut = t.payloads.iter().any(|p| !p.complete);
        let stated: Vec<ConstraintRef<'_>> =
            t.payloads.iter().flat_map(PayloadRef::constraints).filter(|c| !c.retired).collect();
        let retired: Vec<ConstraintRef<'_>> =
            t.payloads.iter().flat_map(PayloadRef::constraints).filter(|c| c.retired).collect();
        let mut list: Vec<At> = Vec::new();
        for a in &self.active {
            if retired.iter().any(|r| r.id == a.id || r.hash == a.hash) {
                continue;
            }
            let in_payload = if !payload_known {
                None
            } else if carries(t, &a.hash, &Sought::new(rules, &a.id, &a.shingles)) {
                Some(true)
            } else {
                (!payload_cut).then_some(false)
            };
            list.push(At {
                id: a.id.clone(),
                hash: a.hash.clone(),
                text: a.text.clone(),
                soft: a.soft,
                active: true,
                held: a.held,
                stated: false,
                in_payload,
                in_view: None,
                counted: false,
                got: None,
                cause: None,
            });
        }
        for c in &stated {
            match list.iter_mut().find(|x| x.id == c.id || x.hash == c.hash) {
                Some(x) => {
                    x.stated = true;
                    x.text = x.text.take().or_else(|| c.text.map(str::to_owned));
                }
                None => list.push(At {
                    id: c.id.to_owned(),
                    hash: c.hash.to_owned(),
                    text: c.text.map(str::to_owned),
                    soft: c.soft,
                    active: false,
                    held: false,
                    stated: true,
                    in_payload: Some(true),
                    in_view: None,
                    counted: false,
                    got: None,
                    cause: None,
                }),
            }
        }
        for x in &mut list {
            let shingles = stated
                .iter()
                .find(|c| c.hash == x.hash)
                .map(|c| unpack_u32(c.shingles).collect())
                .or_else(|| {
                    self.active.iter().find(|a| a.hash == x.hash || a.id == x.id).map(|a| a.shingles.clone())
                })
                .unwrap_or_default();
            if !view_known {
                continue;
            }
            let held = match (&told, receiver_inf) {
                (Some(ids), _) => ids.contains(&x.id),
                (None, Some(f)) => {
                    let matched = match &self.seen {
                        Some(ids) => ids.contains(&x.id),
                        None => f.policies.contains(&x.id),
                    };
                    matched || view_holds(f, &Sought::new(rules, &x.id, &shingles))
                }
                (None, None) => false,
            };
            x.in_view = if held { Some(true) } else { (!view_cut).then_some(false) };
        }
        let out = judge(list, view_known, payload_known, payload_unknown, t.to_run.is_some());
        // What this transfer states is in force from now on; what it retires is not.
        self.active.retain(|a| !retired.iter().any(|r| r.id == a.id || r.hash == a.hash));
        if t.outcome == "accepted" {
            self.stated.extend(stated.into_iter().map(|c| Active {
                id: c.id.to_owned(),
                hash: c.hash.to_owned(),
                text: c.text.map(str::to_owned),
                soft: c.soft,
                shingles: unpack_u32(c.shingles).collect(),
                held: true,
            }));
        }
        out
    }

    /// Durable state, and the policy catalogue where the sender's view or instructions hold it.
    fn add_state(&mut self, rules: &Rules, t: &Transfer<'_>, infs: &[Inference<'_>]) {
        if let Some(h) = t.explicit {
            for id in h.state_constraint_ids().iter() {
                let at = h.constraint_ids().iter().position(|x| x == id);
                let hash = at.and_then(|k| h.constraint_hashes().iter().nth(k)).unwrap_or_default();
                if let Some(a) = self.active.iter_mut().find(|a| a.id == id) {
                    a.held = true;
                } else {
                    self.active.push(Active {
                        id: id.to_owned(),
                        hash: hash.to_owned(),
                        text: None,
                        soft: false,
                        shingles: Vec::new(),
                        held: true,
                    });
                }
            }
        }
        let Some(f) = t.sender.map(|k| &infs[k]) else { return };
        for p in &rules.policies {
            if !p.agents.is_empty()
                && !t.to_name.as_deref().is_some_and(|n| p.agents.contains(&baton_record::names::slug(n)))
                && !t.from_name.as_deref().is_some_and(|n| p.agents.contains(&baton_record::names::slug(n)))
            {
                continue;
            }
            let seen = f.policies.contains(&p.id) || view_holds(f, &Sought::new(rules, &p.id, &p.shingles));
            if seen && !self.active.iter().any(|a| a.id == p.id) {
                self.active.push(Active {
                    id: p.id.clone(),
                    hash: p.hash.clone(),
                    text: p.text.clone(),
                    soft: p.soft,
                    shingles: p.shingles.clone(),
                    held: false,
                });
            }
        }
    }
}

fn judge(
    mut list: Vec<At>,
    view_known: bool,
    payload_known: bool,
    payload_unknown: Option<&'static str>,
    ran: bool,
) -> Constraints {
    for x in list.iter_mut().filter(|x| !x.soft) {
        x.counted = ran && (x.active || (x.stated && view_known));
        x.got = if view_known { x.in_view } else { x.in_payload };
        if x.counted && x.got == Some(false) {
            x.cause = Some(match x.in_payload {
                Some(true) => "dropped_by_filter",
                _ if !x.stated && !x.held => "not_in_state",
                _ => "dropped_from_payload",
            });
        }
    }
    let mut c = Constraints::default();
    let counted: Vec<&At> = list.iter().filter(|x| x.counted).collect();
    let before: Vec<&At> = list.iter().filter(|x| x.active && !x.soft).collect();
    c.retention_unknown = if counted.is_empty() {
        Some("no active constraint".to_owned())
    } else if !view_known && !payload_known {
        Some(payload_unknown.unwrap_or("neither payload nor view is known").to_owned())
    } else if counted.iter().any(|x| x.got.is_none()) {
        let known = counted.iter().filter(|x| x.got == Some(true)).count();
        Some(format!("content cut off: {known} of {} found in what is there", counted.len()))
    } else {
        None
    };
    c.payload_unknown = if before.is_empty() {
        Some("no constraint was active before the transfer".to_owned())
    } else if let Some(why) = payload_unknown.filter(|_| !payload_known) {
        Some(why.to_owned())
    } else if before.iter().any(|x| x.in_payload.is_none()) {
        Some("payload cut off".to_owned())
    } else {
        None
    };
    c.list = list;
    c
}

/// Whether a transfer carries a constraint: stated in its payload, said in the words of it, or told by the sender's tracing.
pub(super) fn carries(t: &Transfer<'_>, hash: &str, sought: &Sought<'_>) -> bool {
    let stated =
        |p: &PayloadRef<'_>| p.constraints().any(|c| !c.retired && (c.id == sought.id || c.hash == hash));
    t.payloads.iter().any(|p| stated(p) || sought.in_payload(p))
        || t.explicit
            .is_some_and(|h| h.constraint_ids().contains(sought.id) || h.constraint_hashes().contains(hash))
}

fn view_holds(f: &Inference<'_>, sought: &Sought<'_>) -> bool {
    f.input.iter().flatten().chain(&f.instructions).any(|i| sought.in_item(i))
}

/// What a text must hold where it holds a constraint: computed once, then looked for in many texts.
pub(super) struct Sought<'s> {
    pub id: &'s str,
    phrase: &'s [u32],
    /// Of the id.
    own: Prints,
}

impl<'s> Sought<'s> {
    pub(super) fn new(rules: &Rules, id: &'s str, phrase: &'s [u32]) -> Self {
        Self { id, phrase, own: rules.key.prints(id) }
    }

    fn in_payload(&self, p: &PayloadRef<'_>) -> bool {
        p.policies().contains(self.id) || self.holds(p.shingles(), p.idents())
    }

    pub(super) fn in_item(&self, i: &ItemRef<'_>) -> bool {
        !i.blanked && self.holds(i.shingles(), i.idents())
    }

    /// A constraint is in a text when its id or its normalised text is.
    fn holds(&self, text_shingles: &[u8], text_idents: &[u8]) -> bool {
        let all =
            |phrase: &[u32]| !phrase.is_empty() && phrase.iter().all(|s| packed_holds(text_shingles, *s));
        if all(self.phrase) {
            return true;
        }
        // An id that is no identifier (a plain word) is found as a clause of its own.
        if self.own.idents.is_empty() {
            return self.id.len() > 3 && all(&self.own.shingles);
        }
        self.own.idents.iter().all(|h| unpack_u64(text_idents).any(|x| x | 1 == h | 1))
    }
}

/// What the receivers' own tracing says they got, by run: the first span of each that says it.
pub(super) fn received<'a>(g: &Graph<'a>, runs: &Runs<'a>) -> HashMap<usize, Vec<String>> {
    let mut out = HashMap::default();
    for (i, n) in g.nodes.iter().enumerate() {
        if let (Some(run), Some(h)) =
            (runs.of_node[i], n.s.handoff().filter(|h| h.signal == Signal::Received))
        {
            out.entry(run).or_insert_with(|| h.constraint_ids().iter().map(str::to_owned).collect());
        }
    }
    out
}
