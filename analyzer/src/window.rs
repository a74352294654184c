//! Windows of time: which tasks an evaluation is about.

use baton_record::collect::duration;
use datafusion::arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;

use crate::sums::HOUR;

const DAY: i64 = 86_400_000_000_000;

/// Tasks whose last activity lies in it. A task belongs whole to the window that its last span ends in, also where it began
/// earlier, so that windows that touch count every task once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// From here on, in nanoseconds since 1970; `None`: from the first task on.
    pub since: Option<i64>,
    /// Up to here, not including it; `None`: up to the last task.
    pub until: Option<i64>,
}

/// Why a window was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A point in time of no known form.
    #[error(
        "`{0}` is no time: say now, today, yesterday, a time before now like 24h or 7d, a day like 2026-11-28, or 2026-11-28T06:00:00Z"
    )]
    Time(String),
    /// It ends before it begins, or holds nothing.
    #[error("the window from {0} until {1} holds no time")]
    Empty(String, String),
}

impl Window {
    /// From what a user says. `now` is in nanoseconds since 1970. Days begin at midnight UTC.
    ///
    /// # Errors
    /// Where a time has no known form, or the window is empty.
    pub fn parse(since: Option<&str>, until: Option<&str>, now: i64) -> Result<Self, Error> {
        let at = |text: Option<&str>| text.map(|t| instant(t, now)).transpose();
        let window = Self { since: at(since)?, until: at(until)? };
        match (window.since, window.until) {
            (Some(a), Some(b)) if a >= b => {
                Err(Error::Empty(since.unwrap_or_default().to_owned(), until.unwrap_or_default().to_owned()))
            }
            _ => Ok(window),
        }
    }

    /// From `SINCE..UNTIL`, where either side may be empty.
    ///
    /// # Errors
    /// Those of [`Window::parse`].
    pub fn parse_range(text: &str, now: i64) -> Result<Self, Error> {
        let (since, until) = text.split_once("..").ok_or_else(|| Error::Time(text.to_owned()))?;
        let side = |t: &'_ str| Some(t.to_owned()).filter(|t| !t.is_empty());
        Self::parse(side(since).as_deref(), side(until).as_deref(), now)
    }

    /// True where it begins and ends with an hour.
    pub fn is_of_hours(&self) -> bool {
        [self.since, self.until].into_iter().flatten().all(|t| t.rem_euclid(HOUR) == 0)
    }

    /// True where every task lies in it.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// The window of the same length that ends where this one begins; `None` where it has no length.
    pub fn before(&self) -> Option<Self> {
        let (since, until) = (self.since?, self.until?);
        Some(Self { since: Some(since.checked_sub(until.checked_sub(since)?)?), until: Some(since) })
    }
}

fn instant(text: &str, now: i64) -> Result<i64, Error> {
    let midnight = now - now.rem_euclid(DAY);
    match text {
        "now" => return Ok(now),
        "today" => return Ok(midnight),
        "yesterday" => return Ok(midnight - DAY),
        _ => {}
    }
    let wrong = || Error::Time(text.to_owned());
    if let Some(d) = duration(text) {
        let back = i64::try_from(d.as_nanos()).map_err(|_| wrong())?;
        return now.checked_sub(back).ok_or_else(wrong);
    }
    // Without a zone a time is UTC, as everything else here.
    string_to_timestamp_nanos(text).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-30T14:20:00Z.
    const NOW: i64 = 1_796_048_400_000_000_000;
    const HOUR: i64 = DAY / 24;

    #[test]
    fn times_are_read_in_every_form() {
        let midnight = NOW - 14 * HOUR - HOUR / 3;
        for (text, at) in [
            ("now", NOW),
            ("today", midnight),
            ("yesterday", midnight - DAY),
            ("24h", NOW - DAY),
            ("7d", NOW - 7 * DAY),
            ("90m", NOW - HOUR - HOUR / 2),
            ("2026-11-30", midnight),
            ("2026-11-30T14:20:00Z", NOW),
            ("2026-11-30T15:20:00+01:00", NOW),
            ("2026-11-30T14:20:00", NOW),
        ] {
            assert_eq!(instant(text, NOW), Ok(at), "{text}");
        }
        for text in ["", "tomorrow", "7 d", "-1d", "2026-13-01", "d", "99999999999999d", "1796048400"] {
            assert_eq!(instant(text, NOW), Err(Error::Time(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_window_has_two_ends_or_fewer() {
        let w = Window::parse(Some("yesterday"), Some("today"), NOW);
        assert_eq!(w.map(|w| w.until.zip(w.since).map(|(b, a)| b - a)), Ok(Some(DAY)));
        assert!(Window::parse(None, None, NOW).is_ok_and(|w| w.is_everything() && w.before().is_none()));
        assert!(matches!(Window::parse(Some("today"), Some("today"), NOW), Err(Error::Empty(..))));
        assert!(matches!(Window::parse(Some("now"), Some("7d"), NOW), Err(Error::Empty(..))));
        assert_eq!(Window::parse_range("7d..", NOW), Window::parse(Some("7d"), None, NOW));
        assert!(Window::parse_range("7d", NOW).is_err());
        let last = Window { since: Some(100), until: Some(130) };
        assert_eq!(last.before(), Some(Window { since: Some(70), until: Some(100) }));
    }
}
