//! The trivial hand for Extism, whose guests move bytes through the host's
//! kernel in words, as its own development kits do.

#[link(wasm_import_module = "extism:host/env")]
extern "C" {
    fn input_length() -> u64;
    fn input_load_u8(offset: u64) -> u32;
    fn input_load_u64(offset: u64) -> u64;
    fn alloc(length: u64) -> u64;
    fn store_u8(offset: u64, value: u32);
    fn store_u64(offset: u64, value: u64);
    fn output_set(offset: u64, length: u64);
}

#[link(wasm_import_module = "extism:host/user")]
extern "C" {
    fn wait();
}

fn input() -> Vec<u8> {
    let length = unsafe { input_length() };
    let mut bytes = Vec::with_capacity(length as usize);
    let mut at = 0;
    while at + 8 <= length {
        bytes.extend_from_slice(&unsafe { input_load_u64(at) }.to_le_bytes());
        at += 8;
    }
    while at < length {
        bytes.push(unsafe { input_load_u8(at) } as u8);
        at += 1;
    }
    bytes
}

fn output(text: &[u8]) {
    let start = unsafe { alloc(text.len() as u64) };
    let mut at = start;
    for word in text.chunks(8) {
        if word.len() == 8 {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            unsafe { store_u64(at, u64::from_le_bytes(eight)) };
            at += 8;
            continue;
        }
        for byte in word {
            unsafe { store_u8(at, *byte as u32) };
            at += 1;
        }
    }
    unsafe { output_set(start, text.len() as u64) };
}

#[no_mangle]
pub extern "C" fn query() -> i32 {
    let query = String::from_utf8(input()).expect("a query is UTF-8");
    if query.starts_with("{\"prompt\":\"!") {
        unsafe { wait() };
    }
    let text = format!("{} happened.", if query.is_empty() { "What" } else { "Nothing" });
    output(text.as_bytes());
    0
}
