//! The trivial hand: it reads the query and replies a constant.
#![no_std]

#[link(wasm_import_module = "glovebox")]
extern "C" {
    fn query_read(to: *mut u8, capacity: usize) -> i32;
    fn reply(text: *const u8, length: usize) -> i32;
}

#[link(wasm_import_module = "glovebox_kv")]
extern "C" {
    fn get(request: *const u8, length: usize) -> i32;
}

static mut QUERY: [u8; 4096] = [0; 4096];
static TEXT: &[u8] = b"Nothing happened.";
static REQUEST: &[u8] = b"{\"key\":\"wait\"}";
const PROMPT: usize = "{\"prompt\":\"".len();

#[no_mangle]
pub extern "C" fn glovebox_query_v1() -> i32 {
    unsafe {
        if query_read(QUERY.as_mut_ptr(), QUERY.len()) <= 0 {
            return 1;
        }
        if QUERY[PROMPT] == b'!' {
            get(REQUEST.as_ptr(), REQUEST.len());
        }
        reply(TEXT.as_ptr(), TEXT.len())
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}
