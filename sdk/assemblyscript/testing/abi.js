// The constants of the contract. Written by `go generate ./sdk/internal/constants`
// from the Go package abi: change them there.

export const exportQuery = "glovebox_query_v1";
export const exportWarm = "glovebox_warm_v1";

/** The import modules. */
export const modules = {
  core: "glovebox",
  http: "glovebox_http",
  files: "glovebox_files",
  kv: "glovebox_kv",
  llm: "glovebox_llm",
};

/** The negative number of each kind. */
export const codes = {
  bad_pointer: -1,
  not_granted: -2,
  bad_request: -3,
  too_large: -4,
  too_many_calls: -5,
  quota_exceeded: -6,
  denied: -7,
  not_found: -8,
  timeout: -9,
  disabled: -10,
  unavailable: -11,
};

/** The names of the levels, by number. */
export const levels = ["debug", "info", "warn", "error"];

/** What the contract bounds. */
export const bounds = {
  max_prompt_bytes: 16384,
  max_request_bytes: 1048576,
  max_failure_bytes: 16384,
  max_page_entries: 1000,
  max_key_bytes: 512,
};

/** What the host allows unless the operator changed it. */
export const defaults = {
  default_output_bytes: 65536,
  default_log_bytes: 65536,
  default_log_lines: 1000,
  default_calls: 10000,
  default_file_read_bytes: 1048576,
  default_file_total_bytes: 268435456,
  default_http_requests: 20,
  default_http_bytes: 4194304,
  default_http_timeout_millis: 10000,
  default_kv_value_bytes: 1048576,
  default_kv_total_bytes: 16777216,
  default_llm_calls: 8,
  default_llm_input_tokens: 16000,
};
