// What every client does: look, be refused, change something harmless, change something that needs approval.
export async function story(client) {
  const { tools } = await client.listTools()
  const nodes = await client.callTool({ name: 'list_nodes', arguments: {} })
  const wrong = await client.callTool({ name: 'guest_status', arguments: { guest: 'nosuch' } })
  const made = await client.callTool({ name: 'snapshot_guest', arguments: { guest: '101', name: 'by-client' } })
  let stopped = await client.callTool({ name: 'guest_power', arguments: { guest: 101, action: 'stop', reason: 'a test' } })
  const first = stopped.structuredContent
  if (first.status === 'needs_approval' && first.plan.token) {
    const { id: plan, sentence, token, phrase } = first.plan
    stopped = await client.callTool({ name: 'apply_plan', arguments: { plan, sentence, token, phrase } })
  }
  return {
    tools: tools.length,
    nodes: nodes.structuredContent.answer.nodes.length,
    wrong: wrong.isError === true && wrong.structuredContent.error.kind,
    made: made.structuredContent.status,
    first: first.status ?? first.error?.kind,
    stopped: stopped.structuredContent.status ?? stopped.structuredContent.error?.kind,
    isError: stopped.isError === true,
  }
}
