// Completions by the host's model. A module that uses something of this asks for the
// capability "llm"; the manifest must ask for it too.

import * as host from "./host";
import { quote, Reader } from "./json";
import { Failure, Result } from "./result";
import { encode } from "./text";

// @ts-ignore: decorator
@external("glovebox_llm", "complete")
declare function host_complete(ptr: usize, len: i32): i32;

/** One answer. */
export class Completion {
  /** It is empty if the model spent all on thinking. */
  text: string = "";
  /** The model's own counts, or the host's estimates. */
  inputTokens: i32 = 0;
  outputTokens: i32 = 0;
}

/**
 * The model's answer to one prompt, of at most maxOutputTokens; 0, and more than is left of the
 * query's, mean what is left. Failures are `bad_request` for a prompt that is none,
 * `quota_exceeded` when calls or tokens are used up, `too_large` for a prompt over the model's
 * window, `denied` for one that the model's server rejects, `timeout` and `unavailable`.
 */
export function complete(prompt: string, system: string = "", maxOutputTokens: i32 = 0): Result<Completion> {
  const request = encode('{"system":' + quote(system) + ',"prompt":' + quote(prompt) + ',"max_output_tokens":' + maxOutputTokens.toString() + "}");
  const size = host_complete(changetype<usize>(request), request.byteLength);
  if (size < 0) return Result.failed<Completion>(Failure.ofCode("llm complete", size));
  const completion = new Completion();
  const reader = new Reader(host.passingResult(size));
  reader.object();
  while (reader.nextKey()) {
    if (reader.keyIs("text")) completion.text = reader.string();
    else if (reader.keyIs("input_tokens")) completion.inputTokens = <i32>reader.integer();
    else if (reader.keyIs("output_tokens")) completion.outputTokens = <i32>reader.integer();
    else reader.skip();
  }
  const failure = reader.finish("llm complete");
  return failure ? Result.failed<Completion>(failure) : Result.of(completion);
}
