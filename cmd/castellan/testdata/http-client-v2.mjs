// One session of the TypeScript SDK v2 over HTTP, in the era that MODE names. Argument: the URL. Prints one JSON object.
import { createRequire } from 'node:module'
const need = createRequire(process.env.CASTELLAN_NODE_DIR + '/index.js')
const { Client, StreamableHTTPClientTransport } = need('@modelcontextprotocol/client')

const mode = process.env.MODE === 'pin' ? { pin: '2026-07-28' } : process.env.MODE
const answer = process.env.DIALOG
const client = new Client({ name: 'v2', version: '1' }, { versionNegotiation: { mode }, capabilities: answer ? { elicitation: { form: {} } } : {} })
const asked = []
if (answer) {
  client.setRequestHandler('elicitation/create', async request => {
    asked.push(request.params.message)
    return answer === 'accept' ? { action: 'accept', content: { confirm: true } } : { action: answer }
  })
}
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2]), { requestInit: { headers: { Authorization: 'Bearer node' } } }))
const { story } = await import('./client-story.mjs')
const told = await story(client)
await client.close()
console.log(JSON.stringify({ ...told, asked }))
