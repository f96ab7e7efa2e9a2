package generate_test

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

func inJavaScript(list []row) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n\n// Of each method: its name, where it is called, whether it may be tried again,\n"+
		"// and how many seconds it may take by itself.\nexport const METHODS = {\n", generated)
	for _, m := range list {
		fmt.Fprintf(&b, "  %s: [%q, %q, %q, %d],\n", lowerCamel(m.Name), m.Name, m.Scope, m.repeat(), m.wait)
	}
	fmt.Fprint(&b, "};\n")
	return b.Bytes(), nil
}

func inTypeScript(list []row) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n", generated)
	for _, m := range list {
		name := camel(m.Name)
		fmt.Fprintf(&b, "\nexport type %sParams = {%s\n};\nexport type %sResult = %s;\n",
			name, typeScriptParams(m.spec), name, typeScriptType(m.spec.Get("result.schema"), ""))
	}
	fmt.Fprint(&b, "\n/** What may be said of one call. */\nexport interface CallOptions {\n"+
		"  /** Seconds that this call may take, in place of the client's. */\n  timeout?: number | null;\n"+
		"  /** Ends the call, and not what it began. */\n  signal?: AbortSignal;\n}\n"+
		"\n/** Every method of a server. */\nexport interface Methods {\n")
	for _, m := range list {
		optional := "?"
		if m.spec.Get("params.0.required").Bool() {
			optional = ""
		}
		fmt.Fprintf(&b, "  /** %s. */\n  %s(params%s: %sParams, options?: CallOptions): Promise<%sResult>;\n",
			m.Summary, lowerCamel(m.Name), optional, camel(m.Name), camel(m.Name))
	}
	fmt.Fprint(&b, "}\n")
	return b.Bytes(), nil
}

// lowerCamel writes list_agents as listAgents.
func lowerCamel(name string) string {
	first, rest, _ := strings.Cut(strings.ReplaceAll(name, ".", "_"), "_")
	if rest == "" {
		return first
	}
	return first + camel(rest)
}

func typeScriptParams(spec gjson.Result) string {
	var b strings.Builder
	for _, p := range spec.Get("params").Array() {
		b.WriteString(typeScriptMember(p.Get("name").Str, p.Get("required").Bool(), p.Get("schema"), ""))
	}
	return b.String()
}

func typeScriptMember(name string, required bool, s gjson.Result, indent string) string {
	optional := "?"
	if required {
		optional = ""
	}
	return "\n" + indent + "  " + name + optional + ":" + strings.Replace(" "+typeScriptType(s, indent+"  "), " \n", "\n", 1) + ";"
}

// typeScriptType is the type of a schema. An object that is long has a line for
// each member.
func typeScriptType(s gjson.Result, indent string) string {
	var parts []string
	if value := s.Get("const"); value.Exists() {
		return value.Raw
	}
	if several := s.Get("anyOf"); several.Exists() {
		for _, one := range several.Array() {
			if !one.Get("properties.type.not").Exists() { // of a later version
				parts = append(parts, "\n"+indent+"  | "+typeScriptType(one, indent+"  "))
			}
		}
		return strings.Join(parts, "")
	}
	if values := s.Get("enum"); values.Exists() {
		for _, v := range values.Array() {
			parts = append(parts, v.Raw)
		}
		return strings.Join(parts, " | ")
	}
	for _, kind := range s.Get("type").Array() {
		parts = append(parts, typeScriptOf(kind.Str, s, indent))
	}
	if parts == nil {
		return "unknown"
	}
	return strings.Join(parts, " | ")
}

func typeScriptOf(kind string, s gjson.Result, indent string) string {
	switch kind {
	case "integer":
		return "number"
	case "array":
		return "Array<" + typeScriptType(s.Get("items"), indent) + ">"
	case "object":
	default:
		return kind
	}
	if values := s.Get("additionalProperties"); values.IsObject() {
		return "Record<string, " + typeScriptType(values, indent) + ">"
	}
	if !s.Get("properties").Exists() {
		return "Record<string, unknown>"
	}
	needed := map[string]bool{}
	for _, r := range s.Get("required").Array() {
		needed[r.Str] = true
	}
	var b strings.Builder
	s.Get("properties").ForEach(func(key, member gjson.Result) bool {
		b.WriteString(typeScriptMember(key.Str, needed[key.Str], member, indent))
		return true
	})
	if short := strings.Join(strings.Fields(b.String()), " "); len(indent)+len(short) < 100 {
		return "{ " + strings.TrimSuffix(short, ";") + " }"
	}
	return "{" + b.String() + "\n" + indent + "}"
}
