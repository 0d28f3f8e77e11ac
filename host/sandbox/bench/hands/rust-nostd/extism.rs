//! The trivial hand for Extism, whose guests move bytes through the host's
//! kernel in words, as its own development kits do.
#![no_std]

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

static mut QUERY: [u8; 4096] = [0; 4096];
static TEXT: &[u8] = b"Nothing happened.";
const PROMPT: usize = "{\"prompt\":\"".len();

#[no_mangle]
pub extern "C" fn query() -> i32 {
    unsafe {
        let length = input_length() as usize;
        if length == 0 || length > QUERY.len() {
            return 1;
        }
        let mut words = QUERY[..length].chunks_exact_mut(8);
        let mut at = 0;
        for word in &mut words {
            word.copy_from_slice(&input_load_u64(at).to_le_bytes());
            at += 8;
        }
        for byte in words.into_remainder() {
            *byte = input_load_u8(at) as u8;
            at += 1;
        }
        if QUERY[PROMPT] == b'!' {
            wait();
        }

        let reply = alloc(TEXT.len() as u64);
        let words = TEXT.chunks_exact(8);
        let rest = words.remainder();
        let mut at = reply;
        for word in words {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            store_u64(at, u64::from_le_bytes(eight));
            at += 8;
        }
        for byte in rest {
            store_u8(at, *byte as u32);
            at += 1;
        }
        output_set(reply, TEXT.len() as u64);
    }
    0
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}
