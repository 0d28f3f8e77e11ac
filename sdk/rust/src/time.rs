//! Points in time, as the contract writes them: RFC 3339, shown in UTC.
//!
//! A hand has no time zone database unless it brings one: `Query::timezone` is a name.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A point in time, exact to the nanosecond, without leap seconds.
///
/// It shows in UTC as RFC 3339 has it, with as much of a fraction as there is; a
/// precision says how many digits of it to show: `{:.0}` gives `2026-03-23T09:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: u32,
}

/// The calendar date and the time of day of a `Timestamp`, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateTime {
    /// The year, 2026 and the like.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 59.
    pub second: u32,
    /// 0 for Sunday to 6 for Saturday.
    pub weekday: u32,
}

const DAY: i64 = 86_400;

impl Timestamp {
    /// The point that lies so many seconds after 1970-01-01T00:00:00Z.
    pub const fn from_unix(seconds: i64) -> Timestamp {
        Timestamp {
            seconds,
            nanoseconds: 0,
        }
    }

    /// The whole seconds since 1970-01-01T00:00:00Z, rounded down.
    pub const fn unix(self) -> i64 {
        self.seconds
    }

    /// What is left below the second: 0 to 999,999,999.
    pub const fn subsecond_nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// How long after `earlier` this is; `None` if it is before.
    pub fn since(self, earlier: Timestamp) -> Option<Duration> {
        if self < earlier {
            return None;
        }
        let mut seconds = self.seconds.checked_sub(earlier.seconds)?;
        let mut nanoseconds = self.nanoseconds;
        if nanoseconds < earlier.nanoseconds {
            seconds -= 1;
            nanoseconds += 1_000_000_000;
        }
        Some(Duration::new(
            seconds as u64,
            nanoseconds - earlier.nanoseconds,
        ))
    }

    /// The point so much later; `None` where seconds cannot count it.
    pub fn checked_add(self, after: Duration) -> Option<Timestamp> {
        let nanoseconds = self.nanoseconds + after.subsec_nanos();
        let seconds = i64::try_from(after.as_secs()).ok()?;
        Some(Timestamp {
            seconds: (self.seconds.checked_add(seconds)?)
                .checked_add(i64::from(nanoseconds / 1_000_000_000))?,
            nanoseconds: nanoseconds % 1_000_000_000,
        })
    }

    /// The point so much earlier; `None` where seconds cannot count it.
    pub fn checked_sub(self, before: Duration) -> Option<Timestamp> {
        let borrow = i64::from(self.nanoseconds < before.subsec_nanos());
        let seconds = i64::try_from(before.as_secs()).ok()?;
        Some(Timestamp {
            seconds: self.seconds.checked_sub(seconds)?.checked_sub(borrow)?,
            nanoseconds: self.nanoseconds + borrow as u32 * 1_000_000_000 - before.subsec_nanos(),
        })
    }

    /// Date and time of day, in UTC, by the Gregorian calendar without end.
    pub fn utc(self) -> DateTime {
        let days = self.seconds.div_euclid(DAY);
        let second = self.seconds.rem_euclid(DAY) as u32;
        let (year, month, day) = civil_of_days(days);
        DateTime {
            year,
            month,
            day,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
            weekday: (days + 4).rem_euclid(7) as u32,
        }
    }
}

// The two conversions follow Howard Hinnant, "chrono-Compatible Low-Level Date
// Algorithms": a year begins in March, so that the leap day is its last.

fn civil_of_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

fn days_of_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * march_month + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = self.utc();
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            t.year, t.month, t.day, t.hour, t.minute, t.second
        )?;
        let digits = format!("{:09}", self.nanoseconds);
        let shown = match f.precision() {
            Some(precision) => &digits[..precision.min(9)],
            None => digits.trim_end_matches('0'),
        };
        if !shown.is_empty() {
            write!(f, ".{}", shown)?;
        }
        f.write_str("Z")
    }
}

/// A text is not a time of RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseTimeError;

impl fmt::Display for ParseTimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a time of RFC 3339, such as 2026-03-23T09:00:00Z")
    }
}

impl std::error::Error for ParseTimeError {}

/// Reads a time of RFC 3339, with any offset. Digits beyond the nanosecond are dropped; a
/// leap second (`:60`) is the second after it.
impl FromStr for Timestamp {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Timestamp, ParseTimeError> {
        parse(text.as_bytes()).ok_or(ParseTimeError)
    }
}

fn parse(text: &[u8]) -> Option<Timestamp> {
    let (fixed, mut rest) = (text.get(..19)?, text.get(19..)?);
    if fixed[4] != b'-' || fixed[7] != b'-' || fixed[13] != b':' || fixed[16] != b':' {
        return None;
    }
    if !matches!(fixed[10], b'T' | b't') {
        return None;
    }
    let (year, month, day) = (
        number(&fixed[..4])?,
        number(&fixed[5..7])?,
        number(&fixed[8..10])?,
    );
    let (hour, minute, second) = (
        number(&fixed[11..13])?,
        number(&fixed[14..16])?,
        number(&fixed[17..])?,
    );
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut nanoseconds = 0;
    if rest.first() == Some(&b'.') {
        let digits = rest[1..].iter().take_while(|c| c.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let kept = digits.min(9);
        nanoseconds = number(&rest[1..1 + kept])? * 10_i64.pow(9 - kept as u32);
        rest = &rest[1 + digits..];
    }
    let offset = match rest {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let (hours, minutes) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            let east = hours * 3600 + minutes * 60;
            if *sign == b'+' {
                east
            } else {
                -east
            }
        }
        _ => return None,
    };
    let of_day = hour * 3600 + minute * 60 + second;
    Some(Timestamp {
        seconds: days_of_civil(year, month, day) * DAY + of_day - offset,
        nanoseconds: nanoseconds as u32,
    })
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |n, c| match c {
        b'0'..=b'9' => Some(n * 10 + i64::from(c - b'0')),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_shows() {
        for (text, unix, shown) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
            (
                "2026-03-23T09:00:00Z",
                1_774_256_400,
                "2026-03-23T09:00:00Z",
            ),
            (
                "2026-03-23t10:00:00.5+01:00",
                1_774_256_400,
                "2026-03-23T09:00:00.5Z",
            ),
            (
                "2026-03-22T23:59:59-09:01",
                1_774_256_459,
                "2026-03-23T09:00:59Z",
            ),
            ("2000-02-29T23:59:60z", 951_868_800, "2000-03-01T00:00:00Z"),
            (
                "1969-12-31T23:59:59.000000001Z",
                -1,
                "1969-12-31T23:59:59.000000001Z",
            ),
            (
                "0001-01-01T00:00:00Z",
                -62_135_596_800,
                "0001-01-01T00:00:00Z",
            ),
            (
                "9999-12-31T23:59:59.1234567899Z",
                253_402_300_799,
                "9999-12-31T23:59:59.123456789Z",
            ),
        ] {
            let t: Timestamp = text.parse().expect(text);
            assert_eq!(
                (t.unix(), t.to_string().as_str()),
                (unix, shown),
                "{}",
                text
            );
        }
    }

    #[test]
    fn precision_cuts_the_fraction() {
        let t: Timestamp = "1969-12-31T23:59:59.987654321Z".parse().unwrap();
        assert_eq!(format!("{:.0}", t), "1969-12-31T23:59:59Z");
        assert_eq!(format!("{:.3}", t), "1969-12-31T23:59:59.987Z");
        assert_eq!(format!("{:.99}", t), "1969-12-31T23:59:59.987654321Z");
    }

    #[test]
    fn refuses_what_is_none() {
        for text in [
            "",
            "2026-03-23",
            "2026-03-23T09:00:00",
            "2026-03-23 09:00:00Z",
            "2026-3-23T09:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-04-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+1:00",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+01:60",
            "2026-01-01T00:00:00ZZ",
            "-026-01-01T00:00:00Z",
            "2026-01-01T00:00:00\u{e9}",
            "２026-01-01T00:00:00Z",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(ParseTimeError), "{}", text);
        }
    }

    #[test]
    fn every_day_of_eight_centuries() {
        let (mut days, mut weekday) = (days_of_civil(1600, 1, 1), 6);
        for year in 1600..2400 {
            for month in 1..=12 {
                for day in 1..=days_in(year, month) {
                    assert_eq!(days_of_civil(year, month, day), days);
                    let t = Timestamp::from_unix(days * DAY + 7).utc();
                    assert_eq!((t.year, t.month, t.day), (year, month as u32, day as u32));
                    assert_eq!((t.weekday, t.second), (weekday, 7));
                    days += 1;
                    weekday = (weekday + 1) % 7;
                }
            }
        }
        let ends = (
            Timestamp::from_unix(i64::MIN).utc(),
            Timestamp::from_unix(i64::MAX).utc(),
        );
        assert!(ends.0.year < -290_000_000_000 && ends.1.year > 290_000_000_000);
    }

    #[test]
    fn sums_and_differences() {
        let early: Timestamp = "2026-03-23T09:00:00.75Z".parse().unwrap();
        let late: Timestamp = "2026-03-24T09:00:00.25Z".parse().unwrap();
        let between = Duration::from_millis(86_399_500);
        assert_eq!(late.since(early), Some(between));
        assert_eq!(early.since(late), None);
        assert_eq!(early.checked_add(between), Some(late));
        assert_eq!(late.checked_sub(between), Some(early));
        assert_eq!(late.checked_add(Duration::MAX), None);
        assert_eq!(
            Timestamp::from_unix(i64::MIN).checked_sub(Duration::new(0, 1)),
            None
        );
    }
}
