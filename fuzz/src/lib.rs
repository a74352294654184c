//! What the targets share: the way of a request through the live collector, without network and without its threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::AsArray;
use baton_collector::live::crew::Crew;
use baton_collector::live::ingest::{Budget, Form, Job, Kind, Packing, read};
use baton_collector::live::segment::{self, Entry, Segment};
use baton_collector::reading::Reader;
use baton_record::config::Config;
use baton_record::prints::PrintKey;
use baton_record::span::Span;

/// Settings under which most is done: text is kept and masked, and there is a policy.
const CONFIG: &str = r#"
content = "redacted"
[redact]
patterns = ["CUST-\\d+"]
[aliases]
auftrag = "intent"
[tools]
mutating = ["issue_refund", { name = "move_stock", touches = ["get_stock"] }]
volatile = ["get_time"]
[[constraints]]
id = "refund-window-30d"
text = "Refund only within 30 days of capture"
patterns = ["(?i)within 30 days"]
"#;

/// A place for files; removed when the process ends well.
struct Scratch {
    config: Arc<Config>,
    dir: tempfile::TempDir,
}

thread_local! {
    static SCRATCH: OnceCell<Scratch> = const { OnceCell::new() };
}

fn with<T>(f: impl FnOnce(&Arc<Config>, PathBuf) -> T) -> T {
    SCRATCH.with(|s| {
        let s = s.get_or_init(|| Scratch {
            config: Arc::new(Config::parse("baton.toml", CONFIG).expect("a right configuration")),
            dir: tempfile::tempdir().expect("a folder"),
        });
        f(&s.config, s.dir.path().join("1.arrows"))
    })
}

/// Counts what is allocated.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

impl Counting {
    fn more(&self, bytes: usize) {
        MOST.fetch_max(NOW.fetch_add(bytes, Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }
}

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.more(layout.size());
        unsafe { System.alloc(layout) }
    }

    // What is large grows where it is: the system moves pages, and no second copy is there meanwhile.
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match size.checked_sub(layout.size()) {
            Some(more) => self.more(more),
            None => {
                NOW.fetch_sub(layout.size() - size, Ordering::Relaxed);
            }
        }
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

/// The memory that a piece of work took at most, beside what was there before.
fn most_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let out = work();
    (out, MOST.load(Ordering::Relaxed).saturating_sub(before))
}

/// Memory that any request may take beside its share: most of it are the columns of the encoder, which begin with room for a
/// thousand rows.
const FIXED: usize = 2 << 20;

/// A request that was taken: its rows as the journal gets them, what it reserved of the budget, what it took of the memory.
pub struct Taken {
    pub entry: Entry,
    pub span_ids: Vec<String>,
    pub reserved: usize,
    pub took: usize,
}

/// Unpacks, weighs, decodes, reads with the dialects and encodes. `None` where the request is refused, or holds no rows.
pub fn read_and_encode(kind: Kind, form: Form, bytes: &[u8]) -> Option<Taken> {
    let budget = Budget::new(512 << 20);
    let mut job =
        Job { kind, form, packing: Packing::Plain, body: bytes.to_vec().into(), share: budget.share() };
    // A new reader each time: what an input does must not hang on those before it.
    let reader = with(|config, _| Reader::new(config.clone(), PrintKey([7; 16])));
    // The vocabulary is loaded once, and is not the request's.
    reader.tokens("a");
    let (out, took) = most_of(|| {
        let held = read(&reader, &mut job, 16 << 20, &Crew::default()).ok()?;
        let mut ids: Vec<String> = held.rows.iter().map(|r| r.span_id.clone()).collect();
        ids.sort_unstable();
        (!ids.is_empty()).then(|| (Entry::encode(held.rows).expect("rows fit the schema"), ids))
    });
    let (entry, span_ids) = out?;
    Some(Taken { entry, span_ids, reserved: budget.used(), took })
}

/// Takes bytes as a request of each kind, puts the rows into a segment and reads that. Whatever the bytes are, it ends in rows
/// that come back, or in a refusal; and with no more memory than was reserved.
pub fn take(form: Form, bytes: &[u8]) {
    for kind in [Kind::Traces, Kind::Logs, Kind::Metrics] {
        let Some(mut taken) = read_and_encode(kind, form, bytes) else { continue };
        let over = |t: &Taken| t.took > t.reserved + FIXED;
        if over(&taken) {
            // Patterns and vocabulary remember what they have once seen; that is not the request's.
            taken = read_and_encode(kind, form, bytes).expect("the same as before");
        }
        assert!(!over(&taken), "{} bytes reserved {} and took {}", bytes.len(), taken.reserved, taken.took);
        with(|_, path| {
            let mut segment = Segment::create(&path).expect("a new file");
            segment.append(&[taken.entry], false).expect("room");
            drop(segment);
            let back = segment::read(&path).expect("a file");
            std::fs::remove_file(&path).expect("a file");
            assert_eq!(back.damage, None);
            let mut found = span_ids(&back);
            found.sort_unstable();
            assert_eq!(found, taken.span_ids);
        });
    }
}

/// The ids of all spans that a segment held.
pub fn span_ids(read: &segment::Read) -> Vec<String> {
    let columns =
        read.batches.iter().map(|b| b.column_by_name("span_id").expect("the column").as_string_view());
    columns.flat_map(|c| c.iter().map(|id| id.expect("every span has an id").to_owned())).collect()
}

/// A segment of three batches of two requests; and where each batch ends.
pub fn segment() -> (Vec<u8>, Vec<usize>) {
    with(|_, path| {
        let mut s = Segment::create(&path).expect("a new file");
        let mut ends = Vec::new();
        for requests in [[0..2u64, 2..5], [5..6, 6..9], [9..12, 12..20]] {
            let entries = requests.into_iter().map(|r| Entry::encode(r.map(span).collect()));
            let entries: Result<Vec<Entry>, _> = entries.collect();
            s.append(&entries.expect("rows fit the schema"), false).expect("room");
            ends.push(usize::try_from(s.len()).expect("small"));
        }
        let bytes = std::fs::read(&path).expect("a file");
        std::fs::remove_file(&path).expect("a file");
        (bytes, ends)
    })
}

/// Rows in each batch of [`segment`].
pub const ROWS: [usize; 3] = [5, 4, 11];

fn span(id: u64) -> Span {
    Span {
        trace_id: format!("{:032x}", id / 3 + 1),
        span_id: format!("{id:016x}"),
        name: format!("a span whose name is too long to stand in a view: {id}"),
        start: Some(1_790_000_000_000_000_000 + i64::try_from(id).expect("small")),
        ..Span::default()
    }
}
