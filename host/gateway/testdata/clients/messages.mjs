// A conversation by Anthropic's client, told as one JSON object: crossed_test.go says
// what it has to be. GATEWAY_URL ends in /v1, which this client adds itself.
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const client = new Anthropic({ baseURL: process.env.GATEWAY_URL.replace(/\/v1$/, ""), apiKey: process.env.GATEWAY_TOKEN, maxRetries: 0 });
const common = { model: "jeeves", max_tokens: 500 };
const user = (content) => ({ role: "user", content });
const weather = {
  name: "weather",
  description: "Tells the weather.",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const told = {};

// Every scenario runs with an answer whole, and with one put together from a stream.
const ways = {
  whole: (request) => client.messages.create(request),
  stream: async (request) => {
    const stream = client.messages.stream(request);
    let deltas = "";
    stream.on("text", (delta) => (deltas += delta));
    const all = await stream.finalMessage();
    const said = all.content.filter((block) => block.type === "text").map((block) => block.text).join("");
    if (deltas !== said) throw new Error(`the deltas say ${deltas}, the answer ${said}`);
    return all;
  },
};

for (const [way, ask] of Object.entries(ways)) {
  const first = await ask({ ...common, messages: [user("Good morning.")] });
  const { input_tokens, output_tokens } = first.usage;
  told[`${way}: talk`] = { text: first.content[0].text, stop: first.stop_reason, input_tokens, output_tokens, model: first.model };

  const messages = [user("What is the weather in Oslo and in Rome?")];
  const asks = await ask({ ...common, messages, tools: [weather] });
  const calls = asks.content.filter((block) => block.type === "tool_use");
  messages.push({ role: asks.role, content: asks.content });
  messages.push(user(calls.map(({ id, input }) => ({ type: "tool_result", tool_use_id: id, content: `Rain in ${input.city}.` }))));
  const answered = await ask({ ...common, messages, tools: [weather] });
  told[`${way}: tools`] = {
    stop: asks.stop_reason,
    calls: calls.map(({ name, input }) => `${name} ${input.city}`),
    text: answered.content[0].text,
  };

  const data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const seen = await ask({
    ...common,
    messages: [user([{ type: "image", source: { type: "base64", media_type: "image/png", data } }, { type: "text", text: "What is this?" }])],
  });
  told[`${way}: image`] = seen.stop_reason;

  for (const says of ["Please slow down.", "This is too long.", "Are you overloaded?"]) {
    try {
      await ask({ ...common, messages: [user(says)] });
      told[`${way}: ${says}`] = "no error";
    } catch (error) {
      told[`${way}: ${says}`] = { error: error.constructor.name, status: error.status, type: error.error?.error?.type };
    }
  }
}

const runner = client.beta.messages.toolRunner({
  ...common,
  messages: [user("What is the weather in Oslo and in Rome?")],
  tools: [betaTool({ ...weather, inputSchema: weather.input_schema, run: ({ city }) => `Rain in ${city}.` })],
});
told["run tools"] = (await runner.runUntilDone()).content[0].text;

told["count"] = (await client.messages.countTokens({ model: "jeeves", messages: [user("Good morning.")] })).input_tokens > 2;

try {
  await client.messages.create({ ...common, model: "nobody", messages: [user("Hello.")] });
} catch (error) {
  told["no model"] = { error: error.constructor.name, status: error.status, type: error.error?.error?.type };
}

// Leaving in the middle is no error of anybody's.
for await (const event of await client.messages.create({ ...common, messages: [user("Good night.")], stream: true })) {
  told["left"] = event.type;
  break;
}

console.log(JSON.stringify(told));
