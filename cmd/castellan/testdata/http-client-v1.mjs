// One session of the TypeScript SDK v1 over HTTP. Argument: the URL. Prints one JSON object.
import { createRequire } from 'node:module'
const need = createRequire(process.env.CASTELLAN_NODE_DIR + '/index.js')
const { Client } = need('@modelcontextprotocol/sdk/client/index.js')
const { StreamableHTTPClientTransport } = need('@modelcontextprotocol/sdk/client/streamableHttp.js')
const { ElicitRequestSchema } = need('@modelcontextprotocol/sdk/types.js')

const answer = process.env.DIALOG // accept, decline or cancel; unset: the client has no dialogs
const client = new Client({ name: 'v1', version: '1' }, { capabilities: answer ? { elicitation: {} } : {} })
const asked = []
if (answer) {
  client.setRequestHandler(ElicitRequestSchema, async request => {
    asked.push(request.params.message)
    return answer === 'accept' ? { action: 'accept', content: { confirm: true } } : { action: answer }
  })
}
const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]), { requestInit: { headers: { Authorization: 'Bearer node' } } })
await client.connect(transport)
const { story } = await import('./client-story.mjs')
const told = await story(client)
await transport.terminateSession()
await client.close()
console.log(JSON.stringify({ ...told, asked }))
