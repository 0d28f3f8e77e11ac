// The trivial hand for waPC.
@external("wapc", "__guest_request")
declare function guest_request(operation: usize, payload: usize): void;
@external("wapc", "__host_call")
declare function host_call(
  binding: usize, binding_length: i32, namespace: usize, namespace_length: i32,
  operation: usize, operation_length: i32, payload: usize, payload_length: i32,
): i32;
@external("wapc", "__guest_response")
declare function guest_response(text: usize, length: i32): void;

export function __guest_call(operation_length: i32, query_length: i32): i32 {
  const operation = new ArrayBuffer(operation_length);
  const bytes = new ArrayBuffer(query_length);
  guest_request(changetype<usize>(operation), changetype<usize>(bytes));
  const query = String.UTF8.decode(bytes);
  if (query.startsWith('{"prompt":"!')) host_call(0, 0, 0, 0, 0, 0, 0, 0);
  const text = String.UTF8.encode((query.length > 0 ? "Nothing" : "What") + " happened.");
  guest_response(changetype<usize>(text), text.byteLength);
  return 1;
}
