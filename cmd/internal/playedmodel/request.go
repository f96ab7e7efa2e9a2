package playedmodel

import (
	"strings"

	"github.com/go-json-experiment/json"
)

// request is what is read of a request beside its text.
type request struct {
	Stream bool `json:"stream"`
	// Tools are those of all dialects.
	Tools            []tool `json:"tools"`
	GenerationConfig struct {
		ResponseJSONSchema map[string]any `json:"responseJsonSchema"`
		ResponseSchema     map[string]any `json:"responseSchema"`
	} `json:"generationConfig"`
	ResponseFormat struct {
		JSONSchema struct {
			Schema map[string]any `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

// schema is that of the value which is wanted in the place of text; nil for text.
func (r request) schema() map[string]any {
	for _, schema := range []map[string]any{r.GenerationConfig.ResponseJSONSchema, r.GenerationConfig.ResponseSchema, r.ResponseFormat.JSONSchema.Schema} {
		if schema != nil {
			return schema
		}
	}
	return nil
}

// instance is a value of a schema, as JSON.
func instance(schema map[string]any) string {
	text, err := json.Marshal(valueOf(schema), json.Deterministic(true))
	if err != nil {
		return "{}"
	}
	return string(text)
}

func valueOf(schema map[string]any) any {
	if allowed, ok := schema["enum"].([]any); ok && len(allowed) > 0 {
		return allowed[0]
	}
	kind, _ := schema["type"].(string)
	switch strings.ToLower(kind) {
	case "object":
		value := map[string]any{}
		members, _ := schema["properties"].(map[string]any)
		for name, member := range members {
			if of, ok := member.(map[string]any); ok {
				value[name] = valueOf(of)
			}
		}
		return value
	case "array":
		return []any{}
	case "number", "integer":
		return 1
	case "boolean":
		return false
	default:
		return "a value"
	}
}

// tool is one that is offered, however its dialect nests it.
type tool struct {
	Name       string         `json:"name"`
	Schema     map[string]any `json:"input_schema"`
	Parameters map[string]any `json:"parameters"`
	Function   *tool          `json:"function"`
	// Declarations are Gemini's.
	Declarations []tool         `json:"functionDeclarations"`
	JSONSchema   map[string]any `json:"parametersJsonSchema"`
}

// call is one of a tool.
type call struct {
	name  string
	input map[string]any
}

// arguments are the input as JSON.
func (c *call) arguments() string {
	text, _ := json.Marshal(c.input, json.Deterministic(true)) // of strings and lists
	return string(text)
}

// shells are the tools for commands that programs are known to have.
var shells = map[string]bool{
	"Bash": true, "bash": true, "shell": true, "shell_command": true, "exec_command": true, "run_shell_command": true,
}

// call is that of the tool for commands, if the request asks for it and has not got it.
func (r request) call(body string) *call {
	asked := strings.LastIndex(body, Run)
	if asked < 0 || asked < max(strings.LastIndex(body, Short), strings.LastIndex(body, Long), strings.LastIndex(body, Recall)) {
		return nil
	}
	if strings.Contains(body, Made) { // it has been called; some programs repeat the prompt behind the call
		return nil
	}
	for _, t := range flat(r.Tools) {
		if shells[t.Name] {
			return &call{t.Name, t.input()}
		}
	}
	return nil
}

// flat are all tools, without what they are nested in.
func flat(tools []tool) (all []tool) {
	for _, t := range tools {
		switch {
		case t.Function != nil:
			all = append(all, *t.Function)
		case len(t.Declarations) > 0:
			all = append(all, t.Declarations...)
		default:
			all = append(all, t)
		}
	}
	return all
}

// input is what the tool gets: the command, and a value for all else that it requires.
func (t tool) input() map[string]any {
	schema := t.Schema
	for _, other := range []map[string]any{t.Parameters, t.JSONSchema} {
		if schema == nil {
			schema = other
		}
	}
	members, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	input := map[string]any{}
	for _, name := range required {
		name, _ := name.(string)
		if of, ok := members[name].(map[string]any); ok {
			input[name] = valueOf(of)
		}
	}
	for _, name := range []string{"command", "cmd"} {
		of, ok := members[name].(map[string]any)
		if !ok {
			continue
		}
		if input[name] = Command; of["type"] == "array" {
			input[name] = []any{"bash", "-c", Command}
		}
	}
	return input
}
