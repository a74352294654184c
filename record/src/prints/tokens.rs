//! Cutting a text into what is hashed.

/// A piece of text, in lower case.
pub(super) enum Token<'a> {
    Word(&'a str),
    Ident(&'a str, bool),
    Break,
}

/// White space.
const SPACE: u8 = 1;
/// A sign that ends a token and breaks a clause.
const HARD: u8 = 2;
/// The start of a character that is no ASCII one.
const WIDE: u8 = 4;
/// An upper-case letter.
const UPPER: u8 = 8;
/// A lower-case letter.
const LOWER: u8 = 16;
/// A digit.
const DIGIT: u8 = 32;

/// What each byte is. Text is mostly ASCII, so most of it is cut without decoding characters.
static CLASS: [u8; 256] = {
    let mut t = [0u8; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        t[i] = match b {
            b'\n' => SPACE | HARD,
            b'\t' | 0x0b..=b'\r' | b' ' => SPACE,
            b'"' | b'\'' | b'`' | b'{' | b'}' | b'[' | b']' | b'(' | b')' | b'<' | b'>' | b',' | b';'
            | b'!' | b'?' | b'=' | b'|' | b'*' | b'\\' => HARD,
            b'A'..=b'Z' => UPPER,
            b'a'..=b'z' => LOWER,
            b'0'..=b'9' => DIGIT,
            0x80.. => WIDE,
            _ => 0,
        };
        i += 1;
    }
    t
};

/// The class of a character that is no ASCII one.
fn wide_class(c: char) -> u8 {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}' | '\u{2022}' | '\u{2013}' | '\u{2014}' => HARD,
        c if c.is_whitespace() => SPACE,
        _ => 0,
    }
}

/// Cuts a text into words, identifiers and clause breaks.
pub(super) fn tokens(text: &str, f: &mut dyn FnMut(Token<'_>)) {
    let bytes = text.as_bytes();
    let mut lower = String::new();
    let mut from = 0;
    let mut at = 0;
    // All that is in the token that begins at `from`.
    let mut holds = 0;
    while at < bytes.len() {
        let mut class = CLASS[usize::from(bytes[at])];
        let mut len = 1;
        if class == WIDE
            && let Some(c) = text[at..].chars().next()
        {
            (class, len) = (wide_class(c), c.len_utf8());
            holds |= WIDE;
        }
        if class & (SPACE | HARD) == 0 {
            holds |= class;
            at += len;
            continue;
        }
        token(&text[from..at], holds, &mut lower, f);
        let escape = bytes[at] == b'\\';
        at += len;
        if class & HARD != 0 {
            f(Token::Break);
        }
        // An escape inside JSON text that was not read as JSON.
        if escape && matches!(bytes.get(at), Some(b'n' | b't' | b'r')) {
            at += 1;
        }
        (from, holds) = (at, 0);
    }
    token(&text[from..], holds, &mut lower, f);
}

fn token(raw: &str, holds: u8, lower: &mut String, f: &mut dyn FnMut(Token<'_>)) {
    if raw.is_empty() {
        return;
    }
    let t = if holds & WIDE == 0 {
        let plain = |b: &u8| CLASS[usize::from(*b)] & (UPPER | LOWER | DIGIT) != 0;
        let b = raw.as_bytes();
        let start = b.iter().position(plain).unwrap_or(b.len());
        let end = b.iter().rposition(plain).map_or(start, |i| i + 1);
        &raw[start..end]
    } else {
        raw.trim_matches(|c: char| !c.is_alphanumeric())
    };
    if t.is_empty() {
        if raw.contains([':', '.', '-']) {
            f(Token::Break);
        }
        return;
    }
    // Small letters alone, with signs around them, are an ordinary word as they stand.
    if holds & (WIDE | UPPER | DIGIT) == 0 && t.bytes().all(|b| b.is_ascii_lowercase()) {
        f(Token::Word(t));
    } else {
        mixed(t, lower, f);
    }
    if raw.ends_with([':', '.']) {
        f(Token::Break);
    }
}

/// A token, without the signs around it, of whatever characters.
fn mixed(t: &str, lower: &mut String, f: &mut dyn FnMut(Token<'_>)) {
    let strength = ident_strength(t);
    fold(t, lower);
    if let Some(strong) = strength {
        f(Token::Ident(lower, strong));
    }
    if !t.contains(':') {
        f(Token::Word(lower));
        return;
    }
    for part in t.split(':').map(|p| p.trim_matches(|c: char| !c.is_alphanumeric())).filter(|p| !p.is_empty())
    {
        fold(part, lower);
        if let Some(strong) = ident_strength(part) {
            f(Token::Ident(lower, strong));
        }
        f(Token::Word(lower));
    }
}

/// Puts a text into `out` in lower case.
fn fold(text: &str, out: &mut String) {
    out.clear();
    if text.is_ascii() {
        out.push_str(text);
        out.make_ascii_lowercase();
    } else {
        // Not letter by letter: a final sigma depends on what stands before it.
        out.push_str(&text.to_lowercase());
    }
}

/// `None`: an ordinary word. `Some(true)`: strong (it hardly stands in two texts by chance).
pub(super) fn ident_strength(t: &str) -> Option<bool> {
    let (mut n, mut digits, mut letters, mut hyphens) = (0usize, 0usize, 0usize, 0usize);
    let (mut sign, mut dot, mut dots) = (false, false, false);
    let (mut camel, mut lower, mut before) = (false, false, ' ');
    for c in t.chars() {
        n += 1;
        match c {
            '0'..='9' => digits += 1,
            '_' | '/' | '@' | ':' | '#' | '+' => sign = true,
            '-' => hyphens += 1,
            '.' => {
                dots |= before == '.';
                dot = true;
            }
            c if c.is_alphabetic() => letters += 1,
            _ => {}
        }
        camel |= lower && c.is_uppercase();
        lower = c.is_lowercase();
        before = c;
    }
    if !(4..=200).contains(&n) {
        return None;
    }
    let technical = sign || (n >= 6 && dot && !dots);
    if digits >= 5 || (digits > 0 && letters > 0) || (technical && n >= 5 && letters > 2) || hyphens >= 2 {
        return Some(true);
    }
    if hyphens == 1 || (digits > 0 && letters == 0) {
        return Some(false);
    }
    (camel && n >= 6).then_some(true)
}
