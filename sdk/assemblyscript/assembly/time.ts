/** A point in time, to the nanosecond. Compare two with <, <=, >, >= and ==. */
export class Time {
  constructor(
    /** Seconds since 1970-01-01T00:00:00Z. */
    readonly seconds: i64,
    /** Nanoseconds after that second, 0 to 999,999,999. */
    readonly nanoseconds: i32 = 0,
  ) {}

  /** Reads RFC 3339, as in `2026-03-23T10:00:00.5+01:00`; null if it is none. Digits below a nanosecond are left out. */
  static parse(text: string): Time | null {
    const year = digits(text, 0, 4);
    const month = digits(text, 5, 2);
    const day = digits(text, 8, 2);
    const hour = digits(text, 11, 2);
    const minute = digits(text, 14, 2);
    const second = digits(text, 17, 2);
    if (year < 0 || text.length < 20 || text.charCodeAt(4) != DASH || text.charCodeAt(7) != DASH) return null;
    if ((text.charCodeAt(10) | 0x20) != LOWER_T || text.charCodeAt(13) != COLON || text.charCodeAt(16) != COLON) return null;
    if (month < 1 || month > 12 || day < 1 || day > daysIn(year, month)) return null;
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) return null;

    let at = 19;
    let nanoseconds = 0;
    if (text.charCodeAt(at) == DOT) {
      const first = ++at;
      let unit = 100_000_000;
      for (; at < text.length && isDigit(text.charCodeAt(at)); at++) {
        nanoseconds += (text.charCodeAt(at) - ZERO) * unit;
        unit /= 10;
      }
      if (at == first) return null;
    }
    const zone = offset(text, at);
    if (zone == NO_OFFSET) return null;
    return new Time(<i64>dayNumber(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - zone, nanoseconds);
  }

  /** RFC 3339 in UTC, as in `2026-03-23T09:00:00Z`; what is below a second is left out. */
  toString(): string {
    const year = this.year;
    const sign = year < 0 ? "-" : "";
    return sign + padded(abs(year), 4) + "-" + padded(this.month, 2) + "-" + padded(this.day, 2) +
      "T" + padded(this.hour, 2) + ":" + padded(this.minute, 2) + ":" + padded(this.second, 2) + "Z";
  }

  plusSeconds(seconds: i64): Time {
    return new Time(this.seconds + seconds, this.nanoseconds);
  }

  // All of these are in UTC: there is no time zone database inside a hand.

  get year(): i32 {
    return <i32>(civil(this.days) >> 16);
  }
  /** 1 to 12. */
  get month(): i32 {
    return <i32>(civil(this.days) >> 8) & 0xff;
  }
  /** Of the month, 1 to 31. */
  get day(): i32 {
    return <i32>civil(this.days) & 0xff;
  }
  /** 0 for Sunday to 6 for Saturday. */
  get weekday(): i32 {
    return <i32>(((this.days + 4) % 7 + 7) % 7);
  }
  get hour(): i32 {
    return this.secondOfDay / 3600;
  }
  get minute(): i32 {
    return this.secondOfDay / 60 % 60;
  }
  get second(): i32 {
    return this.secondOfDay % 60;
  }

  private get days(): i64 {
    const days = this.seconds / 86_400;
    return this.seconds % 86_400 < 0 ? days - 1 : days;
  }
  private get secondOfDay(): i32 {
    return <i32>(this.seconds - this.days * 86_400);
  }

  private compare(other: Time): i32 {
    if (this.seconds != other.seconds) return this.seconds < other.seconds ? -1 : 1;
    return this.nanoseconds - other.nanoseconds;
  }
  // @ts-ignore: decorator
  @operator("<")
  private before(other: Time): bool {
    return this.compare(other) < 0;
  }
  // @ts-ignore: decorator
  @operator("<=")
  private notAfter(other: Time): bool {
    return this.compare(other) <= 0;
  }
  // @ts-ignore: decorator
  @operator(">")
  private after(other: Time): bool {
    return this.compare(other) > 0;
  }
  // @ts-ignore: decorator
  @operator(">=")
  private notBefore(other: Time): bool {
    return this.compare(other) >= 0;
  }
  // @ts-ignore: decorator
  @operator("==")
  private equals(other: Time): bool {
    return this.compare(other) == 0;
  }
  // @ts-ignore: decorator
  @operator("!=")
  private differs(other: Time): bool {
    return this.compare(other) != 0;
  }
}

const ZERO: i32 = 0x30;
const DASH: i32 = 0x2d;
const DOT: i32 = 0x2e;
const COLON: i32 = 0x3a;
const PLUS: i32 = 0x2b;
const LOWER_T: i32 = 0x74;
const LOWER_Z: i32 = 0x7a;
const NO_OFFSET: i32 = i32.MIN_VALUE;

function isDigit(unit: i32): bool {
  return unit >= ZERO && unit <= ZERO + 9;
}

/** The number that stands in count digits at a place in text, or -1. */
function digits(text: string, at: i32, count: i32): i32 {
  if (at + count > text.length) return -1;
  let number = 0;
  for (let i = at; i < at + count; i++) {
    const unit = text.charCodeAt(i);
    if (!isDigit(unit)) return -1;
    number = number * 10 + unit - ZERO;
  }
  return number;
}

/** The seconds east of UTC that end text from a place on, or NO_OFFSET. */
function offset(text: string, at: i32): i32 {
  if (at >= text.length) return NO_OFFSET;
  const sign = text.charCodeAt(at);
  if ((sign | 0x20) == LOWER_Z) return at + 1 == text.length ? 0 : NO_OFFSET;
  if ((sign != PLUS && sign != DASH) || at + 6 != text.length || text.charCodeAt(at + 3) != COLON) return NO_OFFSET;
  const hours = digits(text, at + 1, 2);
  const minutes = digits(text, at + 4, 2);
  if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return NO_OFFSET;
  const seconds = hours * 3600 + minutes * 60;
  return sign == DASH ? -seconds : seconds;
}

function daysIn(year: i32, month: i32): i32 {
  if (month == 2) return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

// Days and dates are converted after Howard Hinnant, "chrono-Compatible Low-Level Date
// Algorithms": years begin in March, so that the leap day is the last.

/** Days from 1970-01-01 to a date. */
function dayNumber(year: i32, month: i32, day: i32): i32 {
  if (month <= 2) year--;
  const era = (year >= 0 ? year : year - 399) / 400;
  const yearOfEra = year - era * 400;
  const dayOfYear = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  const dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear;
  return era * 146_097 + dayOfEra - 719_468;
}

/** The date of a day: year, month and day, of which the last two take 8 bits each. */
function civil(days: i64): i64 {
  const shifted = days + 719_468;
  const era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097;
  const dayOfEra = shifted - era * 146_097;
  const yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365;
  const dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100);
  const monthFromMarch = (5 * dayOfYear + 2) / 153;
  const day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1;
  const month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9;
  const year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0);
  return (year << 16) | (month << 8) | day;
}

function padded(number: i32, width: i32): string {
  return number.toString().padStart(width, "0");
}
