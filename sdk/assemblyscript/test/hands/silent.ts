import { Query } from "@gloveboxhq/hand";

export function answer(q: Query): i32 {
  return q.maxOutputTokens;
}
