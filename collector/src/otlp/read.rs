//! Reading inputs: files, folders, globs, standard input; plain, gzip or zstd; JSON or protobuf. Told
//! apart by content, never by name.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::split::{Framing, JsonScan, MAX_MESSAGE, Source, framing, json_end, uvarint};
use super::{Problem, Signal, decode_json, decode_protobuf};

/// What to read, in order.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// Files to read, sorted, each once. `-` is standard input.
    pub files: Vec<Input>,
    /// Names that could not be resolved.
    pub problems: Vec<Problem>,
}

/// One file to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Path, or `-`.
    pub path: PathBuf,
    /// Found in a folder and not named by the user: a file without OTLP data is then no problem.
    pub found: bool,
    /// Size in bytes, 0 where unknown.
    pub size: u64,
}

/// Settings of one reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// The input was found in a folder.
    pub found: bool,
}

/// Called with the number of (packed) bytes read so far of the current input.
pub type Progress<'a> = &'a mut dyn FnMut(u64);

/// Extensions that are looked at in a folder. Named files are read whatever they are called.
const EXTENSIONS: [&str; 10] =
    ["pb", "json", "jsonl", "ndjson", "otlp", "bin", "binpb", "proto", "gz", "zst"];

/// Resolves files, folders (their files, recursively), globs and `-`.
pub fn expand(args: &[String]) -> Inputs {
    let mut out = Inputs::default();
    for a in args {
        if a == "-" {
            out.files.push(Input { path: "-".into(), found: false, size: 0 });
            continue;
        }
        let path = Path::new(a);
        if path.is_dir() {
            folder(path, &mut out);
        } else if path.exists() || !a.contains(['*', '?', '[']) {
            file(path, false, &mut out);
        } else {
            match glob::glob(a) {
                Ok(found) => {
                    let before = out.files.len();
                    for f in found.flatten() {
                        if f.is_dir() { folder(&f, &mut out) } else { file(&f, false, &mut out) }
                    }
                    if out.files.len() == before {
                        out.problems.push(Problem {
                            file: a.clone(),
                            position: "pattern".into(),
                            reason: "no file matches".into(),
                        });
                    }
                }
                Err(e) => out.problems.push(Problem {
                    file: a.clone(),
                    position: format!("character {}", e.pos),
                    reason: e.msg.to_owned(),
                }),
            }
        }
    }
    let mut seen = std::collections::HashSet::new();
    out.files.retain(|f| seen.insert(f.path.clone()));
    out
}

fn file(path: &Path, found: bool, out: &mut Inputs) {
    let size = path.metadata().map(|m| m.len()).unwrap_or(0);
    out.files.push(Input { path: path.to_owned(), found, size });
}

fn folder(path: &Path, out: &mut Inputs) {
    let before = out.files.len();
    for entry in walkdir::WalkDir::new(path).sort_by_file_name() {
        match entry {
            Ok(e) if e.file_type().is_file() => {
                let ext =
                    e.path().extension().and_then(|x| x.to_str()).unwrap_or_default().to_ascii_lowercase();
                if EXTENSIONS.contains(&ext.as_str()) {
                    file(e.path(), true, out);
                }
            }
            Ok(_) => {}
            Err(e) => out.problems.push(Problem {
                file: e.path().unwrap_or(path).display().to_string(),
                position: "folder".into(),
                reason: e.to_string(),
            }),
        }
    }
    if out.files.len() == before {
        out.problems.push(Problem {
            file: path.display().to_string(),
            position: "folder".into(),
            reason: format!("holds no file ending in {}", EXTENSIONS.join(", ")),
        });
    }
}

/// Reads one input and hands each message to `sink`; what cannot be read goes to `problems` and the rest
/// is read on.
///
/// # Errors
/// Only those of `sink`.
pub fn read_input<E>(
    input: &Input,
    progress: Progress<'_>,
    sink: &mut dyn FnMut(Signal) -> Result<(), E>,
    problems: &mut Vec<Problem>,
) -> Result<(), E> {
    let name = input.path.display().to_string();
    let options = Options { found: input.found };
    if name == "-" {
        return read_bytes("-", io::stdin().lock(), options, progress, sink, problems);
    }
    match File::open(&input.path) {
        Ok(f) => read_bytes(&name, f, options, progress, sink, problems),
        Err(e) => {
            problems.push(Problem { file: name, position: "open".into(), reason: e.to_string() });
            Ok(())
        }
    }
}

struct Counting<'a, R> {
    inner: R,
    n: u64,
    progress: Progress<'a>,
}

impl<R: Read> Read for Counting<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let k = self.inner.read(buf)?;
        self.n += k as u64;
        (self.progress)(self.n);
        Ok(k)
    }
}

/// The same for any reader.
///
/// # Errors
/// Only those of `sink`.
pub fn read_bytes<E>(
    name: &str,
    reader: impl Read,
    options: Options,
    progress: Progress<'_>,
    sink: &mut dyn FnMut(Signal) -> Result<(), E>,
    problems: &mut Vec<Problem>,
) -> Result<(), E> {
    let mut head = Source::new(Counting { inner: reader, n: 0, progress });
    let first = head.peek(4);
    if first.starts_with(&[0x1f, 0x8b]) {
        messages(name, Source::new(flate2::read::MultiGzDecoder::new(Rest(head))), options, sink, problems)
    } else if first.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        match zstd::stream::read::Decoder::new(Rest(head)) {
            Ok(mut d) => {
                // A frame that asks for a larger window than this is refused instead of allocated.
                let _ = d.window_log_max(27);
                messages(name, Source::new(d), options, sink, problems)
            }
            Err(e) => {
                problems.push(Problem {
                    file: name.to_owned(),
                    position: "byte 0".into(),
                    reason: format!("zstd: {e}"),
                });
                Ok(())
            }
        }
    } else {
        messages(name, head, options, sink, problems)
    }
}

/// What a [`Source`] still holds, as a reader.
struct Rest<R>(Source<R>);

impl<R: Read> Read for Rest<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let have = self.0.peek(1);
        if have.is_empty() {
            return self.0.error().map_or(Ok(0), Err);
        }
        let n = have.len().min(buf.len());
        buf[..n].copy_from_slice(&have[..n]);
        self.0.take(n);
        Ok(n)
    }
}

fn messages<E, R: Read>(
    name: &str,
    mut src: Source<R>,
    options: Options,
    sink: &mut dyn FnMut(Signal) -> Result<(), E>,
    problems: &mut Vec<Problem>,
) -> Result<(), E> {
    if src.peek(3).starts_with(b"\xef\xbb\xbf") {
        src.take(3);
    }
    loop {
        let blank = src.peek(1).first().is_some_and(u8::is_ascii_whitespace) && {
            // Blank lines in front of JSON. A protobuf input may start with 0x0a, which is one.
            let b = src.peek(64);
            let skip = b.iter().take_while(|c| c.is_ascii_whitespace()).count();
            matches!(b.get(skip), Some(b'{' | b'['))
        };
        if !blank {
            break;
        }
        src.take(1);
    }
    let mut report = Report { name, problems, same: 0 };
    match src.peek(12).first() {
        None => {}
        Some(b'{' | b'[') => json(&mut src, options, sink, &mut report)?,
        Some(_) => {
            let f = framing(src.peek(12));
            match f {
                None if options.found => return Ok(()),
                None => report.add("byte 0", "neither OTLP JSON nor OTLP protobuf"),
                Some(Framing::Single) => single(&mut src, sink, &mut report)?,
                Some(f) => frames(&mut src, f, sink, &mut report)?,
            }
        }
    }
    let at = src.offset;
    if let Some(e) = src.error() {
        report.add(&format!("byte {at} (unpacked)"), &format!("cannot be read on: {e}"));
    }
    Ok(())
}

struct Report<'a> {
    name: &'a str,
    problems: &'a mut Vec<Problem>,
    same: usize,
}

impl Report<'_> {
    /// A file that is broken all over is reported by its first faults and their number.
    fn add(&mut self, position: &str, reason: &str) {
        const SHOWN: usize = 20;
        self.same += 1;
        if self.same <= SHOWN {
            self.problems.push(Problem {
                file: self.name.to_owned(),
                position: position.to_owned(),
                reason: reason.to_owned(),
            });
        } else if let Some(last) = self.problems.last_mut() {
            last.position = "further on".into();
            last.reason = format!("{} more faults like these", self.same - SHOWN + 1);
        }
    }
}

fn json<E, R: Read>(
    src: &mut Source<R>,
    options: Options,
    sink: &mut dyn FnMut(Signal) -> Result<(), E>,
    report: &mut Report<'_>,
) -> Result<(), E> {
    let mut line = 1u64;
    let mut first = true;
    loop {
        // Between documents: white space, and the brackets and commas of an array of documents.
        let b = src.peek(1);
        match b.first() {
            None => return Ok(()),
            Some(c) if c.is_ascii_whitespace() || matches!(c, b',' | b'[' | b']' | 0x1e) => {
                line += u64::from(*c == b'\n');
                src.take(1);
                continue;
            }
            Some(b'{') => {}
            Some(_) => {
                // Not a document: leave out the rest of the line.
                let at = line;
                let mut n = 0;
                loop {
                    let b = src.peek(n + 4096);
                    match b[n..].iter().position(|c| *c == b'\n') {
                        Some(p) => {
                            n += p;
                            break;
                        }
                        None if b.len() == n || n > MAX_MESSAGE => break,
                        None => n = b.len(),
                    }
                }
                src.take(n);
                if !(options.found && first) {
                    report.add(&format!("line {at}"), "no JSON object");
                }
                first = false;
                if src.peek(1).is_empty() {
                    return Ok(());
                }
                continue;
            }
        }
        let mut scan = JsonScan::default();
        let mut want = 64 << 10;
        let (len, broken) = loop {
            let b = src.peek(want);
            let have = b.len();
            match json_end(&mut scan, b) {
                Ok(Some(n)) => break (n, None),
                Err(n) => break (n, Some("ends in the middle")),
                Ok(None) if have < want => break (have, Some("ends in the middle")),
                Ok(None) if have >= MAX_MESSAGE => break (have, Some("is longer than 128 MiB")),
                Ok(None) => want = have * 2,
            }
        };
        let doc = &src.peek(len)[..len];
        let lines = doc.iter().filter(|c| **c == b'\n').count() as u64;
        let position = format!("line {line}");
        match broken {
            Some(reason) => report.add(&position, &format!("JSON document {reason}")),
            None => match decode_json(doc) {
                Err(e) => report.add(&position, &e.0),
                Ok(d) => {
                    if first && options.found && !d.is_otlp && len > 2 {
                        return Ok(()); // Some other JSON file in the folder.
                    }
                    if !d.is_otlp && len > 2 && d.signals.is_empty() {
                        report.add(&position, "holds no resourceSpans, resourceLogs or resourceMetrics");
                    }
                    for (path, reason) in &d.rejected {
                        report.add(&format!("{position}, {path}"), reason);
                    }
                    d.signals.into_iter().try_for_each(&mut *sink)?;
                }
            },
        }
        first = false;
        line += lines;
        src.take(len);
    }
}

fn single<E, R: Read>(
    src: &mut Source<R>,
    sink: &mut dyn FnMut(Signal) -> Result<(), E>,
    report: &mut Report<'_>,
) -> Result<(), E> {
    let b = src.peek(MAX_MESSAGE + 1);
    let len = b.len();
    if len > MAX_MESSAGE {
        report.add("byte 0", "message is longer than 128 MiB");
        return Ok(());
    }
    let decoded = decode_protobuf(b);
    let broken_reader = src.error();
    match decoded {
        Ok(_) if broken_reader.is_some() => {}
        Ok(signal) => sink(signal)?,
        Err(e) if broken_reader.is_none() => report.add("byte 0", &e.0),
        Err(_) => {}
    }
    src.take(len);
    if let Some(e) = broken_reader {
        report.add(&format!("byte {len} (unpacked)"), &format!("cannot be read on: {e}"));
    }
    Ok(())
}

fn frames<E, R: Read>(
    src: &mut Source<R>,
    framing: Framing,
    sink: &mut dyn FnMut(Signal) -> Result<(), E>,
    report: &mut Report<'_>,
) -> Result<(), E> {
    let mut n = 0u64;
    loop {
        let at = src.offset;
        let head = src.peek(10);
        if head.is_empty() {
            return Ok(());
        }
        let length = match framing {
            Framing::BigEndian if head.len() >= 4 => {
                Some((u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]])), 4))
            }
            Framing::BigEndian => None,
            _ => uvarint(head),
        };
        let position = format!("byte {at}, message {n}");
        let Some((len, used)) = length else {
            report.add(&position, "no message length");
            return Ok(());
        };
        if len > MAX_MESSAGE as u64 {
            report.add(&position, &format!("message length {len} is over 128 MiB"));
            return Ok(());
        }
        let len = len as usize;
        src.take(used);
        let b = src.peek(len);
        if b.len() < len {
            report.add(&position, &format!("message ends after {} of {len} bytes", b.len()));
            let rest = b.len();
            src.take(rest);
            return Ok(());
        }
        match decode_protobuf(&b[..len]) {
            Ok(signal) => sink(signal)?,
            Err(e) => report.add(&position, &e.0),
        }
        src.take(len);
        n += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::io::Write;

    const SPAN: &str = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331","name":"x"}]}]}]}"#;

    fn protobuf() -> Vec<u8> {
        use prost::Message;
        match decode_json(SPAN.as_bytes()).map(|mut d| d.signals.remove(0)) {
            Ok(Signal::Traces(t)) => t.encode_to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn count(bytes: &[u8]) -> (usize, Vec<String>) {
        let (mut n, mut problems) = (0, Vec::new());
        let mut sink = |s: Signal| {
            if let Signal::Traces(t) = s {
                n += t
                    .resource_spans
                    .iter()
                    .flat_map(|r| &r.scope_spans)
                    .map(|s| s.spans.len())
                    .sum::<usize>();
            }
            Ok::<(), Infallible>(())
        };
        let r = read_bytes("f", bytes, Options::default(), &mut |_| {}, &mut sink, &mut problems);
        assert!(r.is_ok());
        (n, problems.iter().map(ToString::to_string).collect())
    }

    fn gzip(b: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        e.write_all(b).and_then(|()| e.finish()).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn every_framing_and_packing_gives_the_same_spans() {
        let p = protobuf();
        let uvarint_frames = [&[0x80 | (p.len() & 0x7f) as u8, (p.len() >> 7) as u8], &p[..]].concat();
        assert!(p.len() >= 128 || uvarint_frames.len() > 2);
        let small = if p.len() < 128 { [&[p.len() as u8], &p[..]].concat() } else { uvarint_frames };
        let be = [&(p.len() as u32).to_be_bytes()[..], &p[..]].concat();
        let lines = format!("{SPAN}\n\n{SPAN}\n").into_bytes();
        let pretty = SPAN.replace('{', "{\n  ").into_bytes();
        for (bytes, n) in [
            (p.clone(), 1),
            ([&small[..], &small[..]].concat(), 2),
            ([&be[..], &be[..], &be[..]].concat(), 3),
            (lines, 2),
            (pretty, 1),
            (format!("[{SPAN},\n{SPAN}]").into_bytes(), 2),
            (format!("\u{feff}{SPAN}").into_bytes(), 1),
        ] {
            assert_eq!(count(&bytes), (n, vec![]));
            assert_eq!(count(&gzip(&bytes)), (n, vec![]));
            let z = zstd::encode_all(&bytes[..], 1).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(count(&z), (n, vec![]));
        }
    }

    #[test]
    fn what_is_broken_is_named_and_the_rest_is_read() {
        let (n, problems) =
            count(format!("{SPAN}\n{{\"resourceSpans\": [\n{SPAN}\nnonsense\n{SPAN}\n").as_bytes());
        assert_eq!(n, 3);
        assert_eq!(problems, ["f: line 2: JSON document ends in the middle", "f: line 4: no JSON object"]);
        let p = protobuf();
        let mut cut = [&(p.len() as u32).to_be_bytes()[..], &p[..]].concat();
        cut.extend_from_slice(&cut.clone()[..20]);
        let (n, problems) = count(&cut);
        assert_eq!(n, 1);
        assert!(problems[0].contains("message 1") && problems[0].contains("ends after 16"), "{problems:?}");
        let (n, problems) = count(&gzip(SPAN.as_bytes())[..60]);
        assert_eq!(n, 0);
        assert!(!problems.is_empty());
        assert!(count(b"hello").1[0].contains("neither"));
    }

    #[test]
    fn a_packed_message_beyond_the_limit_is_refused_without_being_held() {
        // 1 GiB announced as one field: a packed member with the head, then 160 of 1 MiB each.
        let mut packed = gzip(&[0x0a, 0x85, 0x80, 0x80, 0x80, 0x04]);
        packed.extend(gzip(&vec![0u8; 1 << 20]).repeat(160));
        let (n, problems) = count(&packed);
        assert_eq!(n, 0);
        assert!(problems[0].contains("longer than 128 MiB"), "{problems:?}");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_hang(b in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let _ = count(&b);
        }
    }
}
