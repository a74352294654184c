//! A span or log record as it came, with its attributes looked up by key.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::trace::v1 as proto;
use serde_json::{Map, Number, Value};

/// Attributes sorted by key. Of a key that stands twice the last one counts, as when it is set twice.
#[derive(Debug, Default)]
pub struct Attrs<'a> {
    list: Vec<(&'a str, &'a Any)>,
    /// Keys that stood more than once.
    pub repeated: u32,
}

impl<'a> Attrs<'a> {
    /// Sorts and makes unique.
    pub fn new(attributes: &'a [KeyValue]) -> Self {
        let mut list: Vec<(&str, usize, &Any)> = attributes
            .iter()
            .enumerate()
            .filter(|(_, kv)| !kv.key.is_empty())
            .filter_map(|(i, kv)| Some((kv.key.as_str(), i, kv.value.as_ref()?.value.as_ref()?)))
            .collect();
        list.sort_unstable_by(|a, b| a.0.cmp(b.0).then(b.1.cmp(&a.1)));
        let all = list.len();
        list.dedup_by(|later, kept| later.0 == kept.0);
        let repeated = (all - list.len()) as u32;
        Self { list: list.into_iter().map(|(k, _, v)| (k, v)).collect(), repeated }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&'a Any> {
        self.list.binary_search_by(|(k, _)| (*k).cmp(key)).ok().map(|i| self.list[i].1)
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
                .values
                .iter()
                .filter_map(|v| if let Some(Any::StringValue(s)) = &v.value { Some(s.clone()) } else { None })
                .collect(),
            Some(Any::StringValue(s)) => match baton_record::json::parse(s) {
                Some(Value::Array(a)) => a.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                _ if s.trim().is_empty() => Vec::new(),
                _ => vec![s.clone()],
            },
            _ => Vec::new(),
        }
    }

    /// The keys that start with a prefix, with the rest of the key.
    pub fn under<'b>(&'b self, prefix: &'b str) -> impl Iterator<Item = (&'a str, &'a Any)> + 'b {
        let from = self.list.partition_point(|(k, _)| *k < prefix);
        self.list[from..]
            .iter()
            .take_while(move |(k, _)| k.starts_with(prefix))
            .map(move |(k, v)| (&k[prefix.len()..], *v))
    }

    /// True where a key starts with the prefix.
    pub fn any_under(&self, prefix: &str) -> bool {
        self.under(prefix).next().is_some()
    }

    /// All pairs.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a Any)> + '_ {
        self.list.iter().copied()
    }
}

/// An attribute value as JSON. Bytes are not text: they read as null.
pub fn to_json(v: &Any) -> Value {
    match v {
        Any::StringValue(s) => Value::String(s.clone()),
        Any::BoolValue(b) => Value::Bool(*b),
        Any::IntValue(i) => Value::Number((*i).into()),
        Any::DoubleValue(d) => Number::from_f64(*d).map_or(Value::Null, Value::Number),
        Any::ArrayValue(a) => Value::Array(a.values.iter().map(any_to_json).collect()),
        Any::KvlistValue(m) => Value::Object(
            m.values
                .iter()
                .map(|kv| (kv.key.clone(), kv.value.as_ref().map_or(Value::Null, any_to_json)))
                .collect::<Map<_, _>>(),
        ),
        _ => Value::Null,
    }
}

/// The same for a value that may be empty.
pub fn any_to_json(v: &AnyValue) -> Value {
    v.value.as_ref().map_or(Value::Null, to_json)
}

/// A span with what stands around it.
#[derive(Debug)]
pub struct Raw<'a> {
    /// The span.
    pub span: &'a proto::Span,
    /// Its attributes.
    pub attrs: Attrs<'a>,
    /// Attributes of the resource.
    pub resource: &'a Attrs<'a>,
    /// Instrumentation scope.
    pub scope: &'a str,
}

impl<'a> Raw<'a> {
    /// Span events of a name, with their attributes.
    pub fn events(&self, name: &'a str) -> impl Iterator<Item = (&'a proto::span::Event, Attrs<'a>)> + '_ {
        self.span.events.iter().filter(move |e| e.name == name).map(|e| (e, Attrs::new(&e.attributes)))
    }

    /// The span's status message, empty where there is none.
    pub fn status_message(&self) -> &'a str {
        self.span.status.as_ref().map_or("", |s| s.message.as_str())
    }
}
