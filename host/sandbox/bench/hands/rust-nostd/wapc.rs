//! The trivial hand for waPC.
#![no_std]

#[link(wasm_import_module = "wapc")]
extern "C" {
    fn __guest_request(operation: *mut u8, payload: *mut u8);
    fn __host_call(
        binding: *const u8,
        binding_length: usize,
        namespace: *const u8,
        namespace_length: usize,
        operation: *const u8,
        operation_length: usize,
        payload: *const u8,
        payload_length: usize,
    ) -> i32;
    fn __guest_response(text: *const u8, length: usize);
}

static mut OPERATION: [u8; 64] = [0; 64];
static mut QUERY: [u8; 4096] = [0; 4096];
static TEXT: &[u8] = b"Nothing happened.";
const PROMPT: usize = "{\"prompt\":\"".len();

#[no_mangle]
pub extern "C" fn __guest_call(operation_length: usize, query_length: usize) -> i32 {
    unsafe {
        if operation_length > OPERATION.len() || query_length == 0 || query_length > QUERY.len() {
            return 0;
        }
        __guest_request(OPERATION.as_mut_ptr(), QUERY.as_mut_ptr());
        if QUERY[PROMPT] == b'!' {
            let none = core::ptr::null();
            __host_call(none, 0, none, 0, none, 0, none, 0);
        }
        __guest_response(TEXT.as_ptr(), TEXT.len());
    }
    1
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}
