import { QUARTERS_PER_TOKEN, quarters } from "./abi";

/** What text costs in tokens, as the host estimates it: a weight for each code point, the sum rounded up. */
export function estimate(text: string): i32 {
  let sum: i64 = 0;
  for (let i = 0; i < text.length; i++) {
    const point = text.codePointAt(i);
    sum += quarters(point);
    if (point > 0xffff) i++;
  }
  return <i32>((sum + QUARTERS_PER_TOKEN - 1) / QUARTERS_PER_TOKEN);
}

/** The longest prefix of text that costs at most max tokens. It never parts a surrogate pair. */
export function cut(text: string, max: i32): string {
  const limit = <i64>max * QUARTERS_PER_TOKEN;
  let sum: i64 = 0;
  for (let i = 0; i < text.length; i++) {
    const point = text.codePointAt(i);
    sum += quarters(point);
    if (sum > limit) return text.substring(0, i);
    if (point > 0xffff) i++;
  }
  return text;
}
