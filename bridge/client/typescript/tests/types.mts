// Never run: tsc looks at it, where there is one.

import { ClientError, detect, NexusClient, type SendResult } from "../nexus.mjs";

const client: NexusClient = new NexusClient({ url: "http://127.0.0.1:8765/agent/worker-1", timeout: null });
const found: "nexus_server" | "no_server" | "other_service" | "timeout" = await detect();
const sent: SendResult = await client.send({ content: found, when_busy: "queue" });
const ids: string[] = (await client.listAgents()).agents.map((agent) => agent.agent_id);
for await (const part of client.sendStream({ content: "x" })) {
  if (part.type === "text") console.log(part.text, ids, sent.usage?.input_tokens);
}
for await (const event of client.events({ after: 0, types: ["turn_end"] })) console.log(event.id, event.data["turn_id"]);
for await (const part of client.runPlanStream({ plan: { tasks: [] } })) {
  if (part.type === "task_end") console.log(part.data.status, part.data.error?.message);
  if (part.type === "result") console.log(part.result.status);
}
const checks: Record<string, string> = (await client.readyz()).checks;
for await (const event of client.allEvents({ after: "-", types: ["error"], agents: ids })) console.log(event.seq);
// @ts-expect-error: the agent is known already
client.events({ agents: ["a"] });
// @ts-expect-error: content is missing
await client.send({});
// @ts-expect-error: no such method
await client.unheardOf();
// @ts-expect-error: no such value
await client.send({ content: "x", when_busy: "never" });
console.log(checks, new ClientError("x").recoverySuggestions);
