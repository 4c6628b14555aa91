package policy

// cedarSchema is what policies can ask about. Every attribute is always there. docs/policies.md describes them.
const cedarSchema = `
entity Role;
entity Caller in [Role] {
  agent: String, person: String, way_in: String, strength: String, roles: Set<String>,
};
entity Target { name: String };
entity Object {
  kind: String, name: String, site: String, title: String, vmid: Long, known: Bool, use: String, backup_age: Long,
  tags: Set<String>, reserved_tags: Set<String>, pools: Set<String>, params: Set<String>,
};
entity Plan { requester: Caller };
type Asked = {
  operation: String, api: String, asked: String, target: String, product: String,
  kind: String, class: String, capability: String, effect: String,
  level: Long, rung: String,
  command_risk: String, tainted: Bool, governs: Bool, reversible: String, steps: Long, objects: Long,
  writes_last_hour: Long, in_window: Bool, hour: Long, weekday: String,
};
action read appliesTo { principal: Caller, resource: Target, context: Asked };
action call appliesTo { principal: Caller, resource: Target, context: Asked };
action write appliesTo { principal: Caller, resource: Object, context: Asked };
action approve appliesTo { principal: Caller, resource: Plan, context: {
  operation: String, effect: String, kinds: Set<String>, governs: Bool, level: Long, rung: String,
  requester_agent: String, requester_person: String,
} };
`
