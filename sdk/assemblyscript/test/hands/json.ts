// Reads its prompt as JSON and writes it again, with what the reader says of what is none.
import { Query, json, register } from "@gloveboxhq/hand";

register((q: Query): string => {
  const parsed = json.parseText(q.prompt);
  if (!parsed.ok) return parsed.failure!.toString();
  const value = parsed.value;
  const text = value.toString();
  if (value.type != json.Type.Number) return text;
  return text + " " + value.integer.toString() + " " + value.isInteger.toString() + " " + reinterpret<u64>(value.number).toString(16);
});
