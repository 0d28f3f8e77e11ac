//! The trivial hand for waPC.

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

#[no_mangle]
pub extern "C" fn __guest_call(operation_length: usize, query_length: usize) -> i32 {
    let mut operation = vec![0; operation_length];
    let mut bytes = vec![0; query_length];
    unsafe { __guest_request(operation.as_mut_ptr(), bytes.as_mut_ptr()) };
    let query = String::from_utf8(bytes).expect("a query is UTF-8");
    if query.starts_with("{\"prompt\":\"!") {
        let none = std::ptr::null();
        unsafe { __host_call(none, 0, none, 0, none, 0, none, 0) };
    }
    let text = format!("{} happened.", if query.is_empty() { "What" } else { "Nothing" });
    unsafe { __guest_response(text.as_ptr(), text.len()) };
    1
}
