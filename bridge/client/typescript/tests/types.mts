// Never run: tsc looks at it, where there is one.

import { ClientError, detect, NexusClient, type SendResult } from "../nexus.mjs";

const client: NexusClient = new NexusClient({ url: "http://127.0.0.1:8765/agent/worker-1", timeout: null });
const found: "nexus_server" | "no_server" | "other_service" | "timeout" = await detect();
const sent: SendResult = await client.send({ content: found, when_busy: "queue" });
const ids: string[] = (await client.listAgents()).agents.map((agent) => agent.agent_id);
for await (const part of client.sendStream({ content: "x" })) {
  if (part.type === "text") console.log(part.text, ids, sent.usage?.input_tokens);
}
for await (const event of client.events({ after: 0, types: ["turn_end"] })) {
  if (event.type === "turn_end" && event.data.outcome === "failed") console.log(event.id, event.data.turn_id, event.data.error);
  if (event.type === "gap") console.log(event.data.to - event.data.from);
  if (event.type === "message_update" && event.data.event.type === "text_delta") console.log(event.data.event.delta.length);
  if (event.type === "permission_request" && event.data.decisions.includes("allow_once")) {
    await client.respondPermission({ request_id: event.data.request_id, decision: "allow_once" });
  }
  // @ts-expect-error: the end of a turn has no such member
  if (event.type === "turn_end") console.log(event.data.state);
  // @ts-expect-error: no such event
  if (event.type === "turn_over") break;
}
for await (const part of client.runPlanStream({ plan: { tasks: [] } })) {
  if (part.type === "plan_start") console.log(part.data.completed.join());
  // @ts-expect-error: a task that has ended says not how many there are
  if (part.type === "task_end") console.log(part.data.tasks);
  if (part.type === "task_end") console.log(part.data.status, part.data.error?.message);
  if (part.type === "result") console.log(part.result.status);
}
const checks: Record<string, string> = (await client.readyz()).checks;
for await (const event of client.allEvents({ after: "-", types: ["error"], agents: ids })) {
  if (event.type === "agent_removed") console.log(event.data.agent_id, event.data.event.last);
  if (event.type === "turn_end") console.log(event.data.seq, event.data.event.outcome);
  if (event.type === "open" && event.data.gap) console.log(event.seq);
}
// @ts-expect-error: the agent is known already
client.events({ agents: ["a"] });
// @ts-expect-error: content is missing
await client.send({});
// @ts-expect-error: no such method
await client.unheardOf();
// @ts-expect-error: no such value
await client.send({ content: "x", when_busy: "never" });
const plan = await client.createPlan({ user_request: "x" });
await client.runPlan({ plan: plan.plan, retry: true });
console.log(checks, new ClientError("x").recoverySuggestions);
