//! A request as it came, with attributes looked up by key. Nothing is copied: text is that of the body or of the decoded request.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value as ProtoAny};
use opentelemetry_proto::tonic::trace::v1 as proto;
use serde_json::{Map, Number, Value};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Any<'a> {
    /// Text.
    StringValue(&'a str),
    /// A truth value.
    BoolValue(bool),
    /// A whole number.
    IntValue(i64),
    /// A number.
    DoubleValue(f64),
    /// A list.
    ArrayValue(Vec<Any<'a>>),
    /// A map.
    KvlistValue(Vec<Field<'a>>),
    /// Bytes, or nothing: no text, reads as null.
    Other,
}

/// A key with its value.
pub type Field<'a> = (&'a str, Any<'a>);

impl<'a> Any<'a> {
    /// A value as prost decoded it.
    pub fn of(v: &'a ProtoAny) -> Self {
        let or_null = |v: &'a AnyValue| v.value.as_ref().map_or(Any::Other, Any::of);
        match v {
            ProtoAny::StringValue(s) => Any::StringValue(s),
            ProtoAny::BoolValue(b) => Any::BoolValue(*b),
            ProtoAny::IntValue(i) => Any::IntValue(*i),
            ProtoAny::DoubleValue(d) => Any::DoubleValue(*d),
            ProtoAny::ArrayValue(a) => Any::ArrayValue(a.values.iter().map(or_null).collect()),
            ProtoAny::KvlistValue(m) => Any::KvlistValue(
                m.values
                    .iter()
                    .map(|kv| (kv.key.as_str(), kv.value.as_ref().map_or(Any::Other, or_null)))
                    .collect(),
            ),
            _ => Any::Other,
        }
    }
}

/// Attributes as prost decoded them; one without a value is none.
pub fn fields(attributes: &[KeyValue]) -> Vec<Field<'_>> {
    attributes
        .iter()
        .filter_map(|kv| Some((kv.key.as_str(), Any::of(kv.value.as_ref()?.value.as_ref()?))))
        .collect()
}

/// Attributes by key. Of a key that stands twice the last one counts, as when it is set twice.
///
/// Dialects ask for a hundred keys, and a span has twenty, many with the same beginning. So keys are found by a number made of
/// parts of them (a tag), and what is not there is mostly told by a bit.
#[derive(Debug, Default, PartialEq)]
pub struct Attrs<'a> {
    list: Vec<Field<'a>>,
    /// The tags of keys with their places in the list, sorted.
    order: Vec<(u32, u32)>,
    /// Bits of the tags.
    tags: [u64; 4],
    /// Bits of the first eight bytes of keys.
    starts: u64,
    /// Keys that stood more than once.
    pub repeated: u32,
}

/// A number for a key: from its length, its end and its middle, in which keys differ more than in their beginnings.
#[inline]
fn tag(key: &str) -> u32 {
    let b = key.as_bytes();
    let (end, middle) = match b.last_chunk::<8>() {
        Some(end) => (*end, b[(b.len() - 8) / 2..].first_chunk().copied().unwrap_or_default()),
        None => {
            let mut all = [0; 8];
            all[..b.len()].copy_from_slice(b);
            (all, [0; 8])
        }
    };
    let mixed = u64::from_le_bytes(end) ^ u64::from_le_bytes(middle).rotate_left(29) ^ b.len() as u64;
    (mixed.wrapping_mul(MIX) >> 32) as u32
}

/// The bit of a beginning; `None`: it is shorter than those that bits are kept of.
#[inline]
fn start(key: &str) -> Option<u64> {
    let first = key.as_bytes().first_chunk::<8>()?;
    Some(1 << (u64::from_le_bytes(*first).wrapping_mul(MIX) >> 58))
}

/// An odd number that spreads bits (2^64 divided by the golden ratio).
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The place of a tag's bit: the word and the bit.
#[inline]
fn bit(tag: u32) -> (usize, u64) {
    ((tag & 3) as usize, 1 << (tag >> 26))
}

impl<'a> Attrs<'a> {
    /// Indexes attributes and makes their keys unique.
    pub fn new(mut list: Vec<Field<'a>>) -> Self {
        list.retain(|(k, _)| !k.is_empty());
        let mut out = Attrs { order: Vec::with_capacity(list.len()), ..Self::default() };
        for (i, (k, _)) in list.iter().enumerate() {
            let tag = tag(k);
            let (word, bit) = bit(tag);
            out.tags[word] |= bit;
            out.starts |= start(k).unwrap_or(0);
            out.order.push((tag, u32::try_from(i).unwrap_or(u32::MAX)));
        }
        out.order.sort_unstable();
        if out.order.windows(2).any(|w| w[0].0 == w[1].0) {
            // Equal tags are nearly always equal keys. The later one comes first and is the one kept.
            let key = |i: u32| list[i as usize].0;
            out.order.sort_unstable_by(|a, b| {
                a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))).then(b.1.cmp(&a.1))
            });
            let all = out.order.len();
            out.order.dedup_by(|later, kept| later.0 == kept.0 && key(later.1) == key(kept.1));
            out.repeated = (all - out.order.len()) as u32;
        }
        out.list = list;
        out
    }

    /// Attributes as prost decoded them.
    pub fn of(attributes: &'a [KeyValue]) -> Self {
        Self::new(fields(attributes))
    }

    /// The value of a key.
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Any<'a>> {
        let tag = tag(key);
        let (word, bit) = bit(tag);
        if self.tags[word] & bit == 0 { None } else { self.find(tag, key) }
    }

    fn find(&self, tag: u32, key: &str) -> Option<&Any<'a>> {
        let from = self.order.partition_point(|(t, _)| *t < tag);
        let same = self.order[from..].iter().take_while(|(t, _)| *t == tag);
        same.map(|(_, i)| &self.list[*i as usize]).find(|(k, _)| *k == key).map(|(_, v)| v)
    }

    /// True where the key stands.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// A text value.
    pub fn str(&self, key: &str) -> Option<&'a str> {
        match self.get(key)? {
            Any::StringValue(s) => Some(s),
            _ => None,
        }
    }

    /// A text value that is not blank.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.str(key).filter(|s| !s.trim().is_empty())
    }

    /// The first of several keys that has a text that is not blank.
    pub fn first_text(&self, keys: &[&str]) -> Option<&'a str> {
        keys.iter().find_map(|k| self.text(k))
    }

    /// A whole number, also from text or an integral double.
    pub fn int(&self, key: &str) -> Option<i64> {
        match self.get(key)? {
            Any::IntValue(i) => Some(*i),
            Any::DoubleValue(d) if d.fract() == 0.0 && d.abs() < 9e15 => Some(*d as i64),
            Any::StringValue(s) => s.trim().parse().ok(),
            _ => None,
        }
    }

    /// The first of several keys that has a whole number.
    pub fn first_int(&self, keys: &[&str]) -> Option<i64> {
        keys.iter().find_map(|k| self.int(k))
    }

    /// A finite number.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Any::IntValue(i) => Some(*i as f64),
            Any::DoubleValue(d) => Some(*d).filter(|d| d.is_finite()),
            Any::StringValue(s) => s.trim().parse::<f64>().ok().filter(|d| d.is_finite()),
            _ => None,
        }
    }

    /// A truth value, also as text.
    pub fn flag(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Any::BoolValue(b) => Some(*b),
            Any::StringValue(s) => match s.to_ascii_lowercase().as_str() {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// A list of texts: an array, JSON of one, or one text.
    pub fn strings(&self, key: &str) -> Vec<String> {
        match self.get(key) {
            Some(Any::ArrayValue(a)) => a
                .iter()
                .filter_map(|v| if let Any::StringValue(s) = v { Some((*s).to_owned()) } else { None })
                .collect(),
            Some(Any::StringValue(s)) => match baton_record::json::parse(s) {
                Some(Value::Array(a)) => a.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                _ if s.trim().is_empty() => Vec::new(),
                _ => vec![(*s).to_owned()],
            },
            _ => Vec::new(),
        }
    }

    /// The keys that start with a prefix, with the rest of the key, in no order.
    pub fn under<'b>(&'b self, prefix: &'b str) -> impl Iterator<Item = (&'a str, &'b Any<'a>)> + 'b {
        let none = start(prefix).is_some_and(|bit| self.starts & bit == 0);
        let all = if none { &[][..] } else { &self.order[..] };
        let pairs = all.iter().map(|(_, i)| &self.list[*i as usize]);
        pairs.filter_map(move |(k, v)| k.strip_prefix(prefix).map(|rest| (rest, v)))
    }

    /// True where a key starts with the prefix.
    pub fn any_under(&self, prefix: &str) -> bool {
        self.under(prefix).next().is_some()
    }

    /// All pairs, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &Any<'a>)> + '_ {
        self.order.iter().map(|(_, i)| &self.list[*i as usize]).map(|(k, v)| (*k, v))
    }
}

/// An attribute value as JSON. Bytes are not text: they read as null.
pub fn to_json(v: &Any<'_>) -> Value {
    match v {
        Any::StringValue(s) => Value::String((*s).to_owned()),
        Any::BoolValue(b) => Value::Bool(*b),
        Any::IntValue(i) => Value::Number((*i).into()),
        Any::DoubleValue(d) => Number::from_f64(*d).map_or(Value::Null, Value::Number),
        Any::ArrayValue(a) => Value::Array(a.iter().map(to_json).collect()),
        Any::KvlistValue(m) => {
            Value::Object(m.iter().map(|(k, v)| ((*k).to_owned(), to_json(v))).collect::<Map<_, _>>())
        }
        Any::Other => Value::Null,
    }
}

/// A traces request.
#[derive(Debug, Default, PartialEq)]
pub struct Traces<'a> {
    /// Its resources.
    pub resources: Vec<Resource<'a>>,
}

impl<'a> Traces<'a> {
    /// Its spans, in order.
    pub fn spans(&self) -> impl Iterator<Item = Placed<'_, 'a>> {
        self.resources.iter().enumerate().flat_map(|(i, resource)| {
            resource.scopes.iter().enumerate().flat_map(move |(j, scope)| {
                let placed = move |(k, span)| Placed {
                    place: [i, j, k],
                    resource: &resource.attrs,
                    scope: scope.name,
                    span,
                };
                scope.spans.iter().enumerate().map(placed)
            })
        })
    }
}

/// A span with where it stands in its request.
#[derive(Debug, Clone, Copy)]
pub struct Placed<'t, 'a> {
    /// Index of the resource, of the scope in it, of the span in that.
    pub place: [usize; 3],
    /// Attributes of the resource.
    pub resource: &'t Attrs<'a>,
    /// Name of the scope.
    pub scope: &'a str,
    /// The span.
    pub span: &'t Span<'a>,
}

/// Spans of one resource.
#[derive(Debug, Default, PartialEq)]
pub struct Resource<'a> {
    /// Attributes of the resource.
    pub attrs: Attrs<'a>,
    /// Its scopes.
    pub scopes: Vec<Scope<'a>>,
}

/// Spans of one instrumentation scope.
#[derive(Debug, Default, PartialEq)]
pub struct Scope<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its spans.
    pub spans: Vec<Span<'a>>,
}

/// A span.
#[derive(Debug, Default, PartialEq)]
pub struct Span<'a> {
    /// 16 bytes, where it is one.
    pub trace_id: &'a [u8],
    /// 8 bytes, where it is one.
    pub span_id: &'a [u8],
    /// Empty for a root.
    pub parent_span_id: &'a [u8],
    /// Flags.
    pub flags: u32,
    /// Its name.
    pub name: &'a str,
    /// Its kind, as a number.
    pub kind: i32,
    /// Nanoseconds since 1970.
    pub start_time_unix_nano: u64,
    /// Likewise.
    pub end_time_unix_nano: u64,
    /// Attributes.
    pub attrs: Attrs<'a>,
    /// Attributes that the sender dropped.
    pub dropped_attributes_count: u32,
    /// Events.
    pub events: Vec<Event<'a>>,
    /// The status, as a number.
    pub status_code: i32,
    /// Its message, empty where there is none.
    pub status_message: &'a str,
}

/// An event of a span.
#[derive(Debug, Default, PartialEq)]
pub struct Event<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its attributes as they stand, repeated ones too.
    pub fields: Vec<Field<'a>>,
}

impl<'a> Event<'a> {
    /// Its attributes by key.
    pub fn attrs(&self) -> Attrs<'a> {
        Attrs::new(self.fields.clone())
    }
}

impl<'a> From<&'a ExportTraceServiceRequest> for Traces<'a> {
    fn from(request: &'a ExportTraceServiceRequest) -> Self {
        let scope = |ss: &'a proto::ScopeSpans| Scope {
            name: ss.scope.as_ref().map_or("", |s| s.name.as_str()),
            spans: ss.spans.iter().map(Span::from).collect(),
        };
        let resource = |rs: &'a proto::ResourceSpans| Resource {
            attrs: Attrs::of(rs.resource.as_ref().map_or(&[][..], |r| &r.attributes)),
            scopes: rs.scope_spans.iter().map(scope).collect(),
        };
        Self { resources: request.resource_spans.iter().map(resource).collect() }
    }
}

impl<'a> From<&'a proto::Span> for Span<'a> {
    fn from(s: &'a proto::Span) -> Self {
        Self {
            trace_id: &s.trace_id,
            span_id: &s.span_id,
            parent_span_id: &s.parent_span_id,
            flags: s.flags,
            name: &s.name,
            kind: s.kind,
            start_time_unix_nano: s.start_time_unix_nano,
            end_time_unix_nano: s.end_time_unix_nano,
            attrs: Attrs::of(&s.attributes),
            dropped_attributes_count: s.dropped_attributes_count,
            events: s.events.iter().map(|e| Event { name: &e.name, fields: fields(&e.attributes) }).collect(),
            status_code: s.status.as_ref().map_or(0, |s| s.code),
            status_message: s.status.as_ref().map_or("", |s| s.message.as_str()),
        }
    }
}

/// A span with what stands around it.
#[derive(Debug)]
pub struct Raw<'a> {
    /// The span.
    pub span: &'a Span<'a>,
    /// Its attributes.
    pub attrs: &'a Attrs<'a>,
    /// Attributes of the resource.
    pub resource: &'a Attrs<'a>,
    /// Instrumentation scope.
    pub scope: &'a str,
}

impl<'a> Raw<'a> {
    /// Span events of a name, with their attributes.
    pub fn events(&self, name: &'a str) -> impl Iterator<Item = (&'a Event<'a>, Attrs<'a>)> + '_ {
        self.span.events.iter().filter(move |e| e.name == name).map(|e| (e, e.attrs()))
    }

    /// The span's status message, empty where there is none.
    pub fn status_message(&self) -> &'a str {
        self.span.status_message
    }
}
