// A conversation by OpenAI's client, told as one JSON object: clients_test.go says
// what it has to be. GATEWAY_URL ends in /v1.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.GATEWAY_URL, apiKey: process.env.GATEWAY_TOKEN, maxRetries: 0 });
const model = "jeeves";
const user = (content) => ({ role: "user", content });
const tools = [
  {
    type: "function",
    function: {
      name: "weather",
      description: "Tells the weather.",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];
const told = {};

// Every scenario runs with an answer whole, and with one put together from a stream.
const ways = {
  whole: (request) => client.chat.completions.create(request),
  stream: async (request) => {
    const runner = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
    let deltas = "";
    runner.on("content.delta", ({ delta }) => (deltas += delta));
    const all = await runner.finalChatCompletion();
    const said = all.choices[0].message.content ?? "";
    if (deltas !== said) throw new Error(`the deltas say ${deltas}, the answer ${said}`);
    return all;
  },
};

for (const [way, ask] of Object.entries(ways)) {
  const first = await ask({ model, messages: [user("Good morning.")] });
  told[`${way}: talk`] = {
    text: first.choices[0].message.content,
    finish: first.choices[0].finish_reason,
    total: first.usage.total_tokens,
    model: first.model,
  };

  const messages = [user("What is the weather in Oslo and in Rome?")];
  const asks = await ask({ model, messages, tools });
  const { message } = asks.choices[0];
  messages.push(message);
  for (const call of message.tool_calls) {
    const { city } = JSON.parse(call.function.arguments);
    messages.push({ role: "tool", tool_call_id: call.id, content: `Rain in ${city}.` });
  }
  const answered = await ask({ model, messages, tools });
  told[`${way}: tools`] = {
    finish: asks.choices[0].finish_reason,
    calls: message.tool_calls.map((call) => `${call.function.name} ${call.function.arguments}`),
    text: answered.choices[0].message.content,
  };

  const picture = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const seen = await ask({
    model,
    messages: [user([{ type: "text", text: "What is this?" }, { type: "image_url", image_url: { url: picture } }])],
  });
  told[`${way}: image`] = { finish: seen.choices[0].finish_reason };

  for (const says of ["Please slow down.", "This is too long.", "Are you overloaded?"]) {
    try {
      await ask({ model, messages: [user(says)] });
      told[`${way}: ${says}`] = "no error";
    } catch (error) {
      told[`${way}: ${says}`] = { error: error.constructor.name, status: error.status, code: error.code };
    }
  }
}

const runner = client.chat.completions.runTools({
  model,
  messages: [user("What is the weather in Oslo and in Rome?")],
  tools: [{ type: "function", function: { ...tools[0].function, parse: JSON.parse, function: ({ city }) => `Rain in ${city}.` } }],
});
told["run tools"] = await runner.finalContent();

const models = [];
for await (const { id } of client.models.list()) models.push(id);
told["models"] = models;
told["model"] = (await client.models.retrieve("plain")).id;

try {
  await client.chat.completions.create({ model: "nobody", messages: [user("Hello.")] });
} catch (error) {
  told["no model"] = { error: error.constructor.name, status: error.status, code: error.code, param: error.param };
}

// Leaving in the middle is no error of anybody's.
for await (const chunk of await client.chat.completions.create({ model, messages: [user("Good night.")], stream: true })) {
  told["left"] = chunk.object;
  break;
}

console.log(JSON.stringify(told));
