// One session of a TypeScript SDK with a server that wants authorization, from nothing but its URL. Arguments: the SDK (v1
// or v2), the URL, and a client id, if there is one already. It loses its access token on the way and has to refresh.
// Prints one JSON object.
import { createRequire } from 'node:module'
const need = createRequire(process.env.CASTELLAN_NODE_DIR + '/index.js')
const [sdk, url, clientId] = process.argv.slice(2)
const { Client, StreamableHTTPClientTransport } = sdk === 'v1'
  ? { ...need('@modelcontextprotocol/sdk/client/index.js'), ...need('@modelcontextprotocol/sdk/client/streamableHttp.js') }
  : need('@modelcontextprotocol/client')

const told = { registered: 0, sent: 0 }
let information = clientId && !clientId.startsWith('https:') ? { client_id: clientId } : undefined
let tokens, verifier, back
const redirect = 'http://127.0.0.1:4711/callback'
const provider = {
  redirectUrl: redirect,
  clientMetadata: { client_name: 'TypeScript', redirect_uris: [redirect], grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'] },
  state: () => 'a state',
  clientInformation: () => information,
  saveClientInformation: i => {
    if (i.client_id !== clientId) told.registered++
    information = i
  },
  tokens: () => tokens,
  saveTokens: t => { tokens = t; told.scope = t.scope },
  saveCodeVerifier: v => { verifier = v },
  codeVerifier: () => verifier,
  redirectToAuthorization: async to => {
    told.sent++
    const answer = await fetch(to, { redirect: 'manual' })
    back = new URL(answer.headers.get('location'))
  },
}
if (clientId?.startsWith('https:')) provider.clientMetadataUrl = clientId

async function connect() {
  const client = new Client({ name: sdk, version: '1' })
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider })
  try {
    await client.connect(transport)
  } catch (error) {
    if (!back) throw error
    if (back.searchParams.get('state') !== 'a state') throw new Error('the state came back changed')
    await (sdk === 'v1' ? transport.finishAuth(back.searchParams.get('code')) : transport.finishAuth(back.searchParams))
    back = undefined
    return connect()
  }
  return client
}
let client = await connect()
told.first = (await client.callTool({ name: 'look', arguments: {} })).structuredContent?.who
await client.close()
const before = tokens.access_token
tokens = { ...tokens, access_token: 'cat_lost' }
client = await connect()
told.again = (await client.callTool({ name: 'look', arguments: {} })).structuredContent?.who
told.refreshed = tokens.access_token !== before && tokens.access_token !== 'cat_lost'
await client.close()
console.log(JSON.stringify(told))
