// The official TypeScript client, over MCP_COMMAND's standard input and output if
// that is set, else over HTTP at MCP_URL. It prints what it was told.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const { MCP_URL, MCP_TOKEN, MCP_COMMAND } = process.env;

function transport(token) {
  if (MCP_COMMAND) {
    const [command, ...args] = JSON.parse(MCP_COMMAND);
    return new StdioClientTransport({ command, args, env: process.env });
  }
  return new StreamableHTTPClientTransport(new URL(MCP_URL), { requestInit: { headers: { Authorization: `Bearer ${token}` } } });
}

const told = {};
const client = new Client({ name: 'test', version: '0' });
await client.connect(transport(MCP_TOKEN));
told.server = client.getServerVersion();
told.instructions = client.getInstructions();
// It holds structured content against the output schema.
told.tools = (await client.listTools()).tools;
const call = async (name, args) => {
  const result = await client.callTool({ name, arguments: args });
  return { text: result.content[0].text, isError: result.isError ?? false, structured: result.structuredContent };
};
told.hands = await call('hand_list', {});
told.hand = await call('hand_query', { hand: 'calendar', prompt: 'today' });
told.search = await call('memory_search', { words: 'heating pump' });
const id = told.search.text.match(/[0-9a-f]{8}-[0-9a-f-]{27}/)[0];
told.describe = await call('memory_describe', { id });
told.expand = await call('memory_expand', { id });
told.topics = await call('memory_topics', {});
told.refused = await call('memory_topics', { user: 'bert' });
if (!MCP_COMMAND) {
  await client.transport.terminateSession();
  const stranger = new Client({ name: 'test', version: '0' });
  told.stranger = await stranger.connect(transport('glovebox_wrong')).then(() => 'let in', (error) => error.message);
}
await client.close();
console.log(JSON.stringify(told));
