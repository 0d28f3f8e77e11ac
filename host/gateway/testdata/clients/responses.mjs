// A conversation by OpenAI's client and its responses, told as one JSON object:
// crossed_test.go says what it has to be. GATEWAY_URL ends in /v1.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.GATEWAY_URL, apiKey: process.env.GATEWAY_TOKEN, maxRetries: 0 });
const model = "jeeves";
const tools = [
  {
    type: "function",
    name: "weather",
    description: "Tells the weather.",
    strict: false,
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
];
const told = {};

// Every scenario runs with an answer whole, and with one put together from a stream.
const ways = {
  whole: (request) => client.responses.create(request),
  stream: async (request) => {
    const stream = client.responses.stream(request);
    let deltas = "";
    stream.on("response.output_text.delta", ({ delta }) => (deltas += delta));
    const all = await stream.finalResponse();
    if (deltas !== all.output_text) throw new Error(`the deltas say ${deltas}, the answer ${all.output_text}`);
    return all;
  },
};

for (const [way, ask] of Object.entries(ways)) {
  const first = await ask({ model, input: "Good morning." });
  told[`${way}: talk`] = { text: first.output_text, status: first.status, total: first.usage.total_tokens, model: first.model };
  const again = await ask({ model, input: "Good night.", previous_response_id: first.id });
  const stored = await client.responses.retrieve(again.id);
  told[`${way}: previous`] = { text: again.output_text, stored: stored.output_text, previous: again.previous_response_id === first.id };

  const input = [{ role: "user", content: "What is the weather in Oslo and in Rome?" }];
  const asks = await ask({ model, input, tools });
  const calls = asks.output.filter((item) => item.type === "function_call");
  const outputs = calls.map((call) => ({
    type: "function_call_output",
    call_id: call.call_id,
    output: `Rain in ${JSON.parse(call.arguments).city}.`,
  }));
  // What was said before comes back whole, or is named.
  const whole = await ask({ model, input: [...input, ...asks.output, ...outputs], tools });
  const behind = await ask({ model, input: outputs, previous_response_id: asks.id, tools });
  told[`${way}: tools`] = {
    status: asks.status,
    calls: calls.map((call) => `${call.name} ${call.arguments}`),
    whole: whole.output_text,
    behind: behind.output_text,
  };

  const picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const seen = await ask({
    model,
    input: [{ role: "user", content: [{ type: "input_text", text: "What is this?" }, { type: "input_image", image_url: picture, detail: "auto" }] }],
  });
  told[`${way}: image`] = seen.status;

  for (const says of ["Please slow down.", "This is too long.", "Are you overloaded?"]) {
    try {
      await ask({ model, input: says });
      told[`${way}: ${says}`] = "no error";
    } catch (error) {
      told[`${way}: ${says}`] = { error: error.constructor.name, status: error.status, code: error.code };
    }
  }
}

try {
  await client.responses.create({ model, input: "Hello.", previous_response_id: "resp_nobody" });
} catch (error) {
  told["no response"] = { error: error.constructor.name, status: error.status, code: error.code, param: error.param };
}

// Leaving in the middle is no error of anybody's.
for await (const event of await client.responses.create({ model, input: "Good night.", stream: true })) {
  told["left"] = event.type;
  break;
}

console.log(JSON.stringify(told));
