//! The hand of TestIsolation in Rust: it dirties what it can, or reads all that it
//! can. What it is asked, and what it answers, is said there. It speaks to the host
//! itself, so that no more of the SDK's state than of its own is under test.
use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::ptr::{addr_of, addr_of_mut, read_volatile, write_volatile};

mod host {
    #[link(wasm_import_module = "glovebox")]
    extern "C" {
        pub fn query_size() -> i32;
        pub fn query_read(to: *mut u8, capacity: usize) -> i32;
        pub fn reply(text: *const u8, size: usize) -> i32;
    }
    #[link(wasm_import_module = "glovebox_files")]
    extern "C" {
        pub fn read(request: *const u8, size: usize) -> i32;
    }
    #[link(wasm_import_module = "wasi_snapshot_preview1")]
    extern "C" {
        pub fn proc_exit(code: u32) -> !;
        pub fn poll_oneoff(from: *const u8, to: *mut u8, count: usize, events: *mut usize) -> u32;
        pub fn random_get(to: *mut u8, size: usize) -> u32;
        pub fn clock_time_get(clock: u32, precision: u64, to: *mut u64) -> u32;
    }
}

/// The upper half of every word that is left behind.
const MARK: u32 = 0x5ca1_ab1e;

const DATA: usize = 128;
const BSS: usize = 4096;
static mut DATA_WORDS: [u64; DATA] = [7; DATA];
static mut BSS_WORDS: [u64; BSS] = [0; BSS];
static mut HEAP: Vec<Vec<u64>> = Vec::new();
static mut NAMES: Option<HashMap<u64, String>> = None;

thread_local! {
    static CELL: Cell<u64> = Cell::new(3);
    static LIST: RefCell<Vec<u64>> = RefCell::new(vec![1, 2, 3]);
}

fn pages() -> usize {
    core::arch::wasm32::memory_size(0)
}

fn grow_one() -> bool {
    core::arch::wasm32::memory_grow(0, 1) != usize::MAX
}

unsafe fn fill(to: *mut u64, n: usize, word: u64) {
    for i in 0..n {
        write_volatile(to.add(i), word);
    }
}

unsafe fn holds(at: *const u64, n: usize, word: u64) -> bool {
    (0..n).all(|i| read_volatile(at.add(i)) == word)
}

#[inline(never)]
fn dirty_stack(depth: usize, word: u64) -> u64 {
    let mut frame = [0u64; 64];
    unsafe { fill(frame.as_mut_ptr(), 64, word) };
    let below = if depth > 0 { dirty_stack(depth - 1, word) } else { word };
    below ^ unsafe { read_volatile(&frame[depth % 64]) }
}

#[inline(never)]
fn forever(word: u64) -> u64 {
    let mut frame = [0u64; 8];
    unsafe { fill(frame.as_mut_ptr(), 8, word) };
    forever(word) ^ unsafe { read_volatile(&frame[3]) }
}

unsafe fn grow(most: usize, word: u64) {
    for _ in 0..most {
        let from = pages() << 16;
        if !grow_one() {
            return;
        }
        fill(from as *mut u64, 65536 / 8, word);
    }
}

unsafe fn kept(word: u64) -> bool {
    holds(addr_of!(DATA_WORDS) as *const u64, DATA, word)
        && holds(addr_of!(BSS_WORDS) as *const u64, BSS, word)
        && (*addr_of!(HEAP)).iter().all(|words| holds(words.as_ptr(), words.len(), word))
        && (*addr_of!(NAMES)).as_ref().map_or(false, |names| names.len() == 100 && names.contains_key(&word))
        && CELL.with(Cell::get) == word
        && LIST.with(|list| list.borrow().iter().all(|&w| w == word))
}

fn ask(path: &str) {
    let request = format!(r#"{{"root":"isolation","path":"{}","offset":0,"length":1}}"#, path);
    unsafe { host::read(request.as_ptr(), request.len()) };
}

/// Sleeps for an hour: one subscription to the monotonic clock.
fn sleep() {
    let mut subscription = [0u64; 6];
    subscription[2] = 1;
    subscription[3] = 3_600_000_000_000;
    let mut event = [0u64; 4];
    let mut events = 0;
    unsafe { host::poll_oneoff(subscription.as_ptr() as *const u8, event.as_mut_ptr() as *mut u8, 1, &mut events) };
}

fn spin(word: u64) -> ! {
    loop {
        unsafe { write_volatile(addr_of_mut!(BSS_WORDS) as *mut u64, word) };
    }
}

/// Returns what to answer, or nothing if the hand fails.
unsafe fn dirty(word: u64, mode: u8) -> Option<String> {
    fill(addr_of_mut!(DATA_WORDS) as *mut u64, DATA, word);
    fill(addr_of_mut!(BSS_WORDS) as *mut u64, BSS, word);
    CELL.with(|cell| cell.set(word));
    LIST.with(|list| *list.borrow_mut() = vec![word; 100]);
    if mode == b'h' {
        // In the middle of a borrow, and of a fill that does not fit.
        LIST.with(|list| {
            let _held = list.borrow_mut();
            fill(((pages() << 16) - 4096) as *mut u64, 1024, word);
        });
    }
    let heap = &mut *addr_of_mut!(HEAP);
    for i in 0..32 {
        heap.push(vec![word; 16 << (i % 6)]);
        drop(vec![word; 300]);
    }
    let names = (*addr_of_mut!(NAMES)).get_or_insert_with(HashMap::new);
    for i in 0..100 {
        names.insert(word.wrapping_add(i), format!("{:016x}", word));
    }
    dirty_stack(50, word);
    grow(if mode == b'g' || mode == b'b' { 1 << 16 } else { 2 }, word);
    match mode {
        b't' | b'b' => core::arch::wasm32::unreachable(),
        b'l' => spin(word),
        b'e' => host::proc_exit(7),
        b'r' => drop(forever(word)),
        b'f' => return None,
        b's' => loop {
            sleep();
        },
        b'c' => {
            ask("cancel");
            spin(word)
        }
        b'p' => ask("panic"),
        b'w' => ask("pause"),
        _ => {}
    }
    if kept(word) {
        Some(format!("kept {:016x}", word))
    } else {
        Some("it does not hold what it wrote".to_string())
    }
}

#[derive(Default)]
struct Found {
    marks: u64,
    at: u64,
    word: u64,
}

unsafe fn scan(from: usize, to: usize, found: &mut Found) -> (u64, u64) {
    let (mut hash, mut nonzero) = (14695981039346656037u64, 0);
    let mut at = from;
    while at < to {
        let word = read_volatile(at as *const u64);
        hash = (hash ^ word).wrapping_mul(1099511628211);
        nonzero += (word != 0) as u64;
        if (word >> 32) as u32 == MARK {
            if found.marks == 0 {
                *found = Found { marks: 0, at: at as u64, word };
            }
            found.marks += 1;
        }
        at += 8;
    }
    (hash, nonzero)
}

unsafe fn read_all() -> String {
    let here = 0u8;
    let mut found = Found::default();
    let first = pages();
    let (hash, _) = scan(8, first << 16, &mut found);
    while grow_one() {}
    let (_, nonzero) = scan(first << 16, pages() << 16, &mut found);
    // What the compiler would know of a cell and a list is asked of memory, too.
    let state = CELL.with(Cell::get) ^ LIST.with(|list| list.borrow().iter().sum::<u64>()) ^ &here as *const u8 as u64;
    format!(
        "{:016x} {:016x} {:016x} {:016x} {:016x} {:016x} {:016x} {:016x}",
        first, hash, pages() - first, nonzero, found.marks, found.at, found.word, state
    )
}

unsafe fn world() -> String {
    let (mut now, mut since, mut random) = (0, 0, [0u8; 16]);
    host::clock_time_get(0, 1, &mut now);
    host::clock_time_get(1, 1, &mut since);
    host::random_get(random.as_mut_ptr(), random.len());
    let keys = RandomState::new().build_hasher().finish();
    let random: String = random.iter().map(|b| format!("{:02x}", b)).collect();
    format!("{} {} {} {:016x}", now, since, random, keys)
}

#[no_mangle]
pub extern "C" fn glovebox_query_v1() -> i32 {
    unsafe {
        let mut query = vec![0; host::query_size() as usize];
        host::query_read(query.as_mut_ptr(), query.len());
        // The prompt is the first field.
        let prompt = &query[11..];
        let reply = match prompt[0] {
            b'd' => {
                let word = u64::from_str_radix(std::str::from_utf8(&prompt[6..22]).unwrap(), 16).unwrap();
                match dirty(word, prompt[23]) {
                    Some(reply) => reply,
                    None => return 1,
                }
            }
            b'r' => read_all(),
            _ => world(),
        };
        host::reply(reply.as_ptr(), reply.len())
    }
}
