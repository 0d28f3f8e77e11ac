// Shows the time in its prompt, and how it compares with now.
import { Query, Time, register } from "@gloveboxhq/hand";

register((q: Query): string => {
  const t = Time.parse(q.prompt);
  if (!t) return "none";
  const order = (t < q.now ? "<" : "") + (t <= q.now ? "≤" : "") + (t == q.now ? "=" : "") + (t >= q.now ? "≥" : "") + (t > q.now ? ">" : "") + (t != q.now ? "≠" : "");
  return `${t} ${t.seconds} ${t.nanoseconds} ${t.weekday} ${t.plusSeconds(1)} ${order}`;
});
