// One session of the TypeScript SDK v1 with a server on stdio. Arguments: the server's command line. Prints one JSON object.
import { createRequire } from 'node:module'
const need = createRequire(process.env.CASTELLAN_NODE_DIR + '/index.js')
const { Client } = need('@modelcontextprotocol/sdk/client/index.js')
const { StdioClientTransport } = need('@modelcontextprotocol/sdk/client/stdio.js')
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
const [command, ...args] = process.argv.slice(2)
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' }))
const { story } = await import('./client-story.mjs')
const told = await story(client)
await client.close()
console.log(JSON.stringify({ ...told, asked }))
