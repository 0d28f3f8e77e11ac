// The trivial hand: it reads the query and replies a constant.
@external("glovebox", "query_size")
declare function query_size(): i32;
@external("glovebox", "query_read")
declare function query_read(to: usize, capacity: i32): i32;
@external("glovebox_kv", "get")
declare function kv_get(request: usize, length: i32): i32;
@external("glovebox", "reply")
declare function reply(text: usize, length: i32): i32;

export function glovebox_query_v1(): i32 {
  const bytes = new ArrayBuffer(query_size());
  query_read(changetype<usize>(bytes), bytes.byteLength);
  const query = String.UTF8.decode(bytes);
  if (query.startsWith('{"prompt":"!')) {
    const request = String.UTF8.encode('{"key":"wait"}');
    kv_get(changetype<usize>(request), request.byteLength);
  }
  const text = String.UTF8.encode((query.length > 0 ? "Nothing" : "What") + " happened.");
  return reply(changetype<usize>(text), text.byteLength);
}
