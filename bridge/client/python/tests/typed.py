"""Never run: pyright looks at it, where there is one. Each comment that has it ignore an
error is an error itself where there is none to be ignored."""

from typing import List

from nexus_client import ClientError, NexusClient, NexusClientSync, Part, params, results


async def talk(client: NexusClient) -> None:
    sent: results.Send = await client.send("x", when_busy="queue", on_disconnect="cancel")
    print(sent.get("content"), sent["request_id"])
    print(sent["content"])  # pyright: ignore[reportTypedDictNotRequiredAccess]
    messages = (await client.get_messages())["messages"]
    print([message["content"].upper() for message in messages if message["role"] == "assistant"])
    parts: List[Part] = [part async for part in client.send_stream("x", on_disconnect="cancel")]
    for part in parts:
        print(part.text)
        if part.type == "result":
            print(part.result["request_id"])
    async for event in client.events(0, types=["turn_end"]):
        if event.type == "turn_end" and event.data["outcome"] == "failed":
            print(event.id, event.data["turn_id"], event.data.get("error"))
            print(event.data["state"])  # pyright: ignore[reportGeneralTypeIssues, reportUnknownArgumentType]
        if event.type == "gap":
            print(event.data["to"] - event.data["from"])
        if event.data["type"] == "message_update" and event.data["event"]["type"] == "text_delta":
            print(len(event.data["event"]["delta"]))
        if event.type == "permission_request" and "allow_once" in event.data["decisions"]:
            await client.respond_permission(event.data["request_id"], "allow_once")
        if event.type == "turn_over":  # pyright: ignore[reportUnnecessaryComparison]
            break
    async for event in client.all_events("-", types=["error"], agents=["a"]):
        if event.type == "agent_removed":
            print(event.data["agent_id"], event.data["event"]["last"])
        if event.type == "turn_end":
            print(event.data["seq"], event.data["event"]["outcome"])
    client.events(agents=["a"])  # pyright: ignore[reportCallIssue]
    await client.send()  # pyright: ignore[reportCallIssue]
    await client.send("x", when_busy="never")  # pyright: ignore[reportArgumentType]


def plan(client: NexusClientSync) -> None:
    if client.readyz()["status"] == "asleep":  # pyright: ignore[reportUnnecessaryComparison]
        return
    tasks: params.Plan = {"tasks": [{"id": "a", "type": "analysis", "description": "look"}]}
    for part in client.run_plan_stream(tasks, pool={"size": 2}, retry=True):
        if part.type == "plan_start":
            print(part.data["completed"])
        if part.type == "task_end":
            print(part.data["status"], part.data.get("error"))
        if part.result is not None:
            print(part.result["status"])
    made = client.create_plan("x")
    client.run_plan(made["plan"], on_failure="stop")
    client.run_plan({"tasks": [{"id": "a"}]})  # pyright: ignore[reportArgumentType]
    try:
        client.get_tokens()
    except ClientError as e:
        print(e.code, e.type, *e.recovery_suggestions)
