package generate_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/schema"
)

// event is one row of the table of events, with the schema of its frame.
type event struct {
	api.EventType
	name  string
	frame gjson.Result
}

func events() (list []event, err error) {
	for _, row := range api.EventTypes() {
		raw, err := json.Marshal(schema.Event(row.Event))
		if err != nil {
			return nil, err
		}
		list = append(list, event{row, row.Event.Name(), gjson.ParseBytes(raw)})
	}
	return list, nil
}

// aboutStream is what the clients say of a streaming method: the type of its parts,
// and more than its summary.
type aboutStream struct{ part, summary, python, typeScript string }

var aboutStreams = map[string]aboutStream{
	"send": {
		part: "Part", summary: "Send a message and have the answer as it comes",
		python: "        The texts joined, since the last restart, are the result's content. To leave\n" +
			"        earlier ends no turn, unless on_disconnect says so. timeout bounds the wait for the\n        first part.\n",
		typeScript: " The texts joined, since the last restart, are the\n   * result's content. timeout bounds the wait for the first part.",
	},
	"execute_task": {
		part: "ExecuteTaskPart", summary: "Have a task done and hear of it as it goes", python: pythonTask,
		typeScript: typeScriptTask,
	},
	"create_plan": {
		part: "CreatePlanPart", summary: "Have a plan made and hear of it as it goes", python: pythonTask,
		typeScript: typeScriptTask,
	},
	"run_plan": {
		part: "PlanPart", summary: "Carry out a plan as run_plan does, and hear of it as it goes",
		python: "        The last part is the result. To leave earlier ends no run. timeout bounds the\n" +
			"        wait for the first part.\n",
		typeScript: " To leave\n   * earlier ends no run. timeout bounds the wait for the first part.",
	},
}

const (
	pythonTask = "        The last part is the result. To leave earlier ends no task. timeout bounds the\n" +
		"        wait for the first part.\n"
	typeScriptTask = " To leave\n   * earlier ends no task. timeout bounds the wait for the first part."
)

// planNotes are the notifications of a streamed run_plan, with the schemas of their
// parameters.
func planNotes() (names []string, params []gjson.Result, err error) {
	for _, n := range api.RunPlan.Stream {
		raw, err := json.Marshal(schema.Of(reflect.TypeOf(n.Params), schema.Written))
		if err != nil {
			return nil, nil, err
		}
		names, params = append(names, n.Name), append(params, gjson.ParseBytes(raw))
	}
	return names, params, nil
}

const pythonEventsHead = `

K = TypeVar("K", bound=str)
D = TypeVar("D")


@dataclass(frozen=True)
class StreamEvent(Generic[K, D]):
    """One event of a stream.

    id is where the stream goes on after it, None if it has none; seq is the same as
    a number, 0 where it is none; type is its name, and data what it says.
    """

    id: Optional[str]
    seq: int
    type: K
    data: D


@dataclass(frozen=True)
class PlanNote(Generic[K, D]):
    """What a run of a plan tells (SPEC 6.7): its name, and its members."""

    type: K
    data: D
    result: None = None


@dataclass(frozen=True)
class PlanEnded:
    """The last part of a run of a plan: its result."""

    result: results.RunPlan
    type: Literal["result"] = "result"
`

func pythonEvents(list []row) ([]byte, error) {
	told, err := events()
	if err != nil {
		return nil, err
	}
	c := newClasses(list)
	c.elsewhere = newClasses(list)
	for _, m := range list {
		c.elsewhere.class(m.spec.Get("result.schema"))
	}
	c.text.WriteString(pythonEventsHead)
	var agent, all []string
	for _, e := range told {
		name := c.class(e.frame)
		kind := fmt.Sprintf("StreamEvent[Literal[%q], ", e.name)
		if e.Agent == api.Bare {
			agent = append(agent, kind+name+"]")
		}
		switch e.All {
		case api.Bare:
			all = append(all, kind+name+"]")
		case api.Owned, api.OwnedLast:
			seq := ""
			if e.All == api.Owned {
				seq = "    seq: int\n"
			}
			fmt.Fprintf(&c.text, "\n\nclass Owned%s(TypedDict):\n    agent_id: str\n%s    event: %s\n", name, seq, name)
			all = append(all, kind+"Owned"+name+"]")
		case api.Nowhere:
		}
	}
	names, params, err := planNotes()
	if err != nil {
		return nil, err
	}
	var plan []string
	for i, s := range params {
		plan = append(plan, fmt.Sprintf("PlanNote[Literal[%q], %s]", names[i], c.class(s)))
	}
	for _, u := range []struct {
		about, name string
		of          []string
	}{
		{"An event of one agent. A later server may have others.", "Event", agent},
		{"An event of any agent. A later server may have others.", "AnyEvent", all},
		{"A piece of a run of a plan. A second plan_start says that the connection broke and\n# all is told anew. The last one is the result.", "PlanPart", append(plan, "PlanEnded")},
	} {
		fmt.Fprintf(&c.text, "\n\n# %s\n%s = Union[\n    %s,\n]\n", u.about, u.name, strings.Join(u.of, ",\n    "))
	}
	text := c.module("What streams tell: a class for each event, by its type.", "Generic", "TypeVar")
	return bytes.Replace(text, []byte("\nfrom typing"), []byte("\nfrom dataclasses import dataclass\nfrom typing"), 1), nil
}

func typeScriptEvents(list []row) ([]byte, error) {
	told, err := events()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n\nimport type {\n  CallOptions,\n  CreatePlanParams,\n  CreatePlanResult,\n  ExecuteTaskParams,\n  ExecuteTaskResult,\n  RunPlanParams,\n  RunPlanResult,\n  SendParams,\n  SendResult,\n} from \"./methods.mjs\";\n\n"+
		"/** What an event says, by its type. A later server may have others. */\nexport interface Frames {\n", generated)
	var agent, bare, owned []string
	for _, e := range told {
		fmt.Fprintf(&b, "  %s: %s;\n", e.name, typeScriptType(e.frame, "  "))
		if e.Agent == api.Bare {
			agent = append(agent, `"`+e.name+`"`)
		}
		switch e.All {
		case api.Bare:
			bare = append(bare, `"`+e.name+`"`)
		case api.Owned:
			owned = append(owned, `"`+e.name+`"`)
		case api.OwnedLast, api.Nowhere:
		}
	}
	names, params, err := planNotes()
	if err != nil {
		return nil, err
	}
	var plan strings.Builder
	for i, s := range params {
		fmt.Fprintf(&plan, "\n  | { type: %q; data: %s }", names[i], typeScriptType(s, "    "))
	}
	fmt.Fprintf(&b, `}

/** One event of a stream. */
export interface StreamEvent<K extends string, D> {
  /** Where the stream goes on after this event; null if it has none. */
  id: string | null;
  /** The same as a number; 0 where it is none. */
  seq: number;
  type: K;
  data: D;
}

type Bare<K extends keyof Frames> = { [T in K]: StreamEvent<T, Frames[T]> }[K];
type Owned<K extends keyof Frames> = { [T in K]: StreamEvent<T, { agent_id: string; seq: number; event: Frames[T] }> }[K];

/** An event of one agent. */
export type Event = Bare<
  %s
>;

/** An event of any agent. */
export type AnyEvent =
  | Bare<%s>
  | StreamEvent<"agent_removed", { agent_id: string; event: Frames["agent_removed"] }>
  | Owned<
      %s
    >;

/**
 * A piece of a run of a plan (SPEC.md, section 6.7); the last one is the result. A second
 * plan_start says that the connection broke and all is told anew.
 */
export type PlanPart =%s
  | { type: "result"; result: RunPlanResult };

/**
 * A piece of a streamed answer; the last one is the result. restart says that the
 * text before it is void: the agent crashed and the send is tried again (on_crash),
 * or the connection broke and the answer is told from its start.
 */
export type Part = { type: "text"; text: string } | { type: "restart" } | { type: "result"; result: SendResult };

/**
 * A piece of a streamed task (SPEC.md, section 6.7); the last one is the result. restart says that
 * the parts before it are void.
 */
export type TaskPart<R> =
  | { type: "text"; text: string }
  | { type: "tool"; tool: { tool_id: string; tool_name?: string; status: "started" | "ended"; is_error?: boolean } }
  | { type: "progress"; progress: string }
  | { type: "restart" }
  | { type: "result"; result: R };
export type ExecuteTaskPart = TaskPart<ExecuteTaskResult>;
export type CreatePlanPart = TaskPart<CreatePlanResult>;

/** Every method whose answer can come in parts. */
export interface Streams {
`, strings.Join(agent, "\n  | "), strings.Join(bare, " | "), strings.Join(owned, "\n      | "), plan.String())
	for _, m := range list {
		if m.Stream != nil {
			fmt.Fprintf(&b, "  /**\n   * %s.%s\n   */\n  %sStream(params: %sParams, options?: CallOptions): AsyncGenerator<%s, void, undefined>;\n",
				aboutStreams[m.Name].summary, aboutStreams[m.Name].typeScript, lowerCamel(m.Name), camel(m.Name), aboutStreams[m.Name].part)
		}
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
}
