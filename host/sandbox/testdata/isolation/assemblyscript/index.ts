// The hand of TestIsolation in AssemblyScript: it dirties what it can, or reads all that
// it can. What it is asked, and what it answers, is said there. Its globals are globals of
// the machine, which no other of these languages has of every type.
@external("glovebox", "query_size")
declare function query_size(): i32;
@external("glovebox", "query_read")
declare function query_read(to: usize, capacity: i32): i32;
@external("glovebox", "reply")
declare function reply(text: usize, size: i32): i32;
@external("glovebox_files", "read")
declare function files_read(request: usize, size: i32): i32;
@external("wasi_snapshot_preview1", "proc_exit")
declare function proc_exit(code: i32): void;
@external("wasi_snapshot_preview1", "poll_oneoff")
declare function poll_oneoff(from: usize, to: usize, count: i32, events: usize): i32;
@external("wasi_snapshot_preview1", "random_get")
declare function random_get(to: usize, size: i32): i32;
@external("wasi_snapshot_preview1", "clock_time_get")
declare function clock_time_get(clock: i32, precision: i64, to: usize): i32;

// The upper half of every word that is left behind.
const MARK: u64 = 0x5ca1ab1e;

let whole: i32 = 42;
let longer: i64 = 0x0123456789abcdef;
let shorter: f32 = 2.5;
let real: f64 = 1.5;
let text: string = "as it was";
let list: u64[] = [1, 2, 3];
let names: Map<u64, string> = new Map<u64, string>();
let heap: StaticArray<u64>[] = [];
const data: StaticArray<u64> = [1, 2, 3, 4, 5, 6, 7, 8];
names.set(1, "one");

function fill(to: usize, n: i32, word: u64): void {
  for (let i = 0; i < n; i++) store<u64>(to + <usize>(i << 3), word);
}

function holds(at: usize, n: i32, word: u64): bool {
  for (let i = 0; i < n; i++) if (load<u64>(at + <usize>(i << 3)) != word) return false;
  return true;
}

function take(most: i32, word: u64): void {
  for (let i = 0; i < most; i++) {
    const was = memory.grow(1);
    if (was < 0) return;
    fill(<usize>was << 16, 8192, word);
  }
}

// Objects that are referenced lie on the stack that the collector looks at.
function forever(word: u64): u64 {
  const frame = new StaticArray<u64>(8);
  fill(changetype<usize>(frame), 8, word);
  return forever(word) ^ frame[3];
}

function ask(path: string): void {
  const request = String.UTF8.encode('{"root":"isolation","path":"' + path + '","offset":0,"length":1}');
  files_read(changetype<usize>(request), request.byteLength);
}

function kept(word: u64): bool {
  for (let i = 0; i < heap.length; i++) if (!holds(changetype<usize>(heap[i]), 64, word)) return false;
  return whole == <i32>word && longer == <i64>word && shorter == <f32>(word & 0xffff) && real == <f64>(word & 0xffff)
    && holds(changetype<usize>(data), 8, word) && list[0] == word && names.size == 101 && text.length == 16;
}

function spin(word: u64): void {
  while (true) longer = <i64>word;
}

function sleep(): void {
  const subscription = new StaticArray<u64>(6), event = new StaticArray<u64>(4), events = new StaticArray<u32>(1);
  subscription[2] = 1;
  subscription[3] = 3600000000000;
  poll_oneoff(changetype<usize>(subscription), changetype<usize>(event), 1, changetype<usize>(events));
}

function dirty(word: u64, mode: i32): string {
  whole = <i32>word;
  longer = <i64>word;
  shorter = <f32>(word & 0xffff);
  real = <f64>(word & 0xffff);
  fill(changetype<usize>(data), 8, word);
  list = [word, word, word, word, word];
  text = hex(word);
  if (mode == 0x68) {
    fill((<usize>memory.size() << 16) - 4096, 1024, word); // leaves memory half-way
  }
  for (let i = 0; i < 100; i++) names.set(word + <u64>i, text);
  for (let i = 0; i < 64; i++) {
    const words = new StaticArray<u64>(64);
    fill(changetype<usize>(words), 64, word);
    heap.push(words);
    fill(changetype<usize>(new StaticArray<u64>(100)), 100, word);
  }
  __collect();
  take(mode == 0x67 || mode == 0x62 ? 65536 : 2, word);
  switch (mode) {
    case 0x74: case 0x62: unreachable();
    case 0x6c: spin(word);
    case 0x65: proc_exit(7);
    case 0x72: return hex(forever(word));
    case 0x66: return "";
    case 0x73: while (true) sleep();
    case 0x63: {
      ask("cancel");
      spin(word);
    }
    case 0x70: {
      ask("panic");
      break;
    }
    case 0x77: ask("pause");
  }
  return kept(word) ? "kept " + hex(word) : "it does not hold what it wrote";
}

let marks: u64 = 0, where: u64 = 0, what: u64 = 0, nonzero: u64 = 0;

function scan(from: usize, to: usize): u64 {
  let hash: u64 = 14695981039346656037;
  nonzero = 0;
  for (let at = from; at < to; at += 8) {
    const word = load<u64>(at);
    hash = (hash ^ word) * 1099511628211;
    if (word != 0) nonzero++;
    if (word >> 32 == MARK && marks++ == 0) {
      where = at;
      what = word;
    }
  }
  return hash;
}

function hex(word: u64): string {
  let digits = "";
  for (let shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef".charAt(<i32>(word >> shift) & 15);
  return digits;
}

function read(): string {
  const first = memory.size();
  const state = <u64>whole ^ longer ^ <u64>reinterpret<u32>(shorter) ^ reinterpret<u64>(real) ^ <u64>list.length ^ <u64>names.size << 8 ^ <u64>text.length << 16;
  const hash = scan(8, <usize>first << 16);
  while (memory.grow(1) >= 0) {}
  const last = memory.size();
  scan(<usize>first << 16, <usize>last << 16);
  // What is said needs room, and there is none left to grow into.
  return hex(first) + " " + hex(hash) + " " + hex(last - first) + " " + hex(nonzero) + " " + hex(marks) + " " + hex(where) + " " + hex(what) + " " + hex(state);
}

function world(): string {
  const times = new StaticArray<u64>(2), random = new StaticArray<u64>(2);
  clock_time_get(0, 1, changetype<usize>(times));
  clock_time_get(1, 1, changetype<usize>(times) + 8);
  random_get(changetype<usize>(random), 16);
  return times[0].toString() + " " + times[1].toString() + " " + hex(random[0]) + hex(random[1]);
}

export function glovebox_query_v1(): i32 {
  const query = new ArrayBuffer(query_size());
  query_read(changetype<usize>(query), query.byteLength);
  const prompt = changetype<usize>(query) + 11; // is the first field
  let said: string;
  switch (load<u8>(prompt)) {
    case 0x64: {
      let word: u64 = 0;
      for (let i = 6; i < 22; i++) {
        const digit = load<u8>(prompt + i);
        word = word << 4 | <u64>(digit > 0x39 ? digit - 0x57 : digit - 0x30);
      }
      said = dirty(word, load<u8>(prompt + 23));
      if (said.length == 0) return 1;
      break;
    }
    case 0x72: {
      said = read();
      break;
    }
    default: said = world();
  }
  const answer = String.UTF8.encode(said);
  return reply(changetype<usize>(answer), answer.byteLength);
}
