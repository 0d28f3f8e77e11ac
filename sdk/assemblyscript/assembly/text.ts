// Strings are UTF-16 here and UTF-8 everywhere else. The standard library's decoder
// takes any bytes, so what comes from outside is looked at before.

/** Returns the text whose UTF-8 the bytes are, or null if they are not UTF-8. */
export function decodeText(bytes: Uint8Array): string | null {
  if (!isUTF8(bytes.dataStart, bytes.length)) return null;
  return String.UTF8.decodeUnsafe(bytes.dataStart, bytes.length);
}

/** Returns the text in UTF-8. Half of a surrogate pair becomes U+FFFD. */
export function encodeText(text: string): Uint8Array {
  return Uint8Array.wrap(encode(text));
}

/** What encodeText returns, for a call of the host. */
export function encode(text: string): ArrayBuffer {
  return String.UTF8.encode(text, false, String.UTF8.ErrorMode.REPLACE);
}

/** Reports whether each surrogate has its other half: only then are different texts different in UTF-8. */
export function isWellFormed(text: string): bool {
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if ((unit & 0xf800) != 0xd800) continue;
    if (unit >= 0xdc00 || i + 1 == text.length || (text.charCodeAt(i + 1) & 0xfc00) != 0xdc00) return false;
    i++;
  }
  return true;
}

/** Reports whether a range of memory is well-formed UTF-8, after table 3-7 of the Unicode Standard. */
export function isUTF8(start: usize, length: i32): bool {
  let at = start;
  const end = start + length;
  while (at < end) {
    const lead = load<u8>(at++);
    if (lead < 0x80) continue;
    let low: u8 = 0x80;
    let high: u8 = 0xbf;
    let more: usize = 1;
    if (lead >= 0xc2 && lead <= 0xdf) {
      // One more byte, of any value.
    } else if (lead >= 0xe0 && lead <= 0xef) {
      more = 2;
      if (lead == 0xe0) low = 0xa0;
      if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
      more = 3;
      if (lead == 0xf0) low = 0x90;
      if (lead == 0xf4) high = 0x8f;
    } else {
      return false;
    }
    if (end - at < more) return false;
    const second = load<u8>(at++);
    if (second < low || second > high) return false;
    while (--more > 0) {
      if ((load<u8>(at++) & 0xc0) != 0x80) return false;
    }
  }
  return true;
}
