package generate_test

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

func pythonTable(list []row) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\"\"\"What the clients know of the methods of a server.\"\"\"\n\nfrom typing import Dict, NamedTuple, Tuple\n\n\n"+
		"class Method(NamedTuple):\n    \"\"\"Where a method is called, whether it may be tried again, how many seconds it may take\n"+
		"    by itself, and its parameters that are sent also if they are None.\"\"\"\n\n"+
		"    scope: str\n    repeat: str\n    wait: int\n    required: Tuple[str, ...]\n\n\n"+
		"METHODS: Dict[str, Method] = {\n", generated)
	for _, m := range list {
		var required strings.Builder
		for _, p := range m.spec.Get(`params.#(required==true)#.name`).Array() {
			fmt.Fprintf(&required, "%q, ", p.Str)
		}
		fmt.Fprintf(&b, "    %q: Method(%q, %q, %d, (%s)),\n", m.Name, m.Scope, m.repeat(), m.wait, strings.TrimSpace(required.String()))
	}
	fmt.Fprint(&b, "}\n")
	return b.Bytes(), nil
}

// shape is one of the two clients in Python.
type shape struct {
	class, about     string
	def, await, call string // of a method
	stream           string // what a streaming method returns, of its parts
	imported         string
}

func pythonAsync(list []row) ([]byte, error) {
	return pythonMethods(list, shape{
		class: "AsyncMethods", about: "Every method of a server, for asyncio.", def: "async def", await: "await ",
		stream: "AsyncGenerator[%s, None]", imported: "AsyncGenerator",
	})
}

func pythonSync(list []row) ([]byte, error) {
	return pythonMethods(list, shape{
		class: "SyncMethods", about: "Every method of a server, for plain code.", def: "def",
		stream: "Generator[%s, None, None]", imported: "Generator",
	})
}

// parts are the classes of what the streams give, by method.
var parts = map[string]string{"send": "core.Part", "run_plan": "core.PlanPart"}

func pythonMethods(list []row, s shape) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\"\"\"%s\"\"\"\n\n", generated, s.about)
	fmt.Fprintf(&b, "from typing import Any, Dict, %s, List, Literal, Optional, cast\n\nfrom . import core, results\n\n\n", s.imported)
	fmt.Fprintf(&b, "class %s:\n    \"\"\"%s\"\"\"\n\n    %s _call(self, method: str, given: Dict[str, Any]) -> Any:\n"+
		"        raise NotImplementedError\n\n    def _stream(self, method: str, given: Dict[str, Any]) -> Any:\n"+
		"        raise NotImplementedError\n", s.class, s.about, s.def)
	for _, m := range list {
		result := "results." + camel(m.Name)
		fmt.Fprintf(&b, "\n    %s %s(%s) -> %s:\n        \"\"\"%s.\"\"\"\n        return cast(%s, %sself._call(%q, locals()))\n",
			s.def, snake(m.Name), pythonParams(m.spec), result, m.Summary, result, s.await, m.Name)
		if stream, ok := m.Stream(); ok {
			result := fmt.Sprintf(s.stream, parts[m.Name])
			fmt.Fprintf(&b, "\n    def %s_stream(%s) -> %s:\n        \"\"\"%s.\n\n%s        \"\"\"\n        return cast(%s, self._stream(%q, locals()))\n",
				snake(m.Name), pythonParams(m.spec), result, stream.Summary, aboutStreams[m.Name], result, m.Name)
		}
	}
	return b.Bytes(), nil
}

// aboutStreams is what the clients in Python say of a streaming method besides.
var aboutStreams = map[string]string{
	"send": "        The texts joined, since the last restart, are the result's content. To leave\n" +
		"        earlier ends no turn, unless on_disconnect says so. timeout bounds the wait for the first part.\n",
	"run_plan": "        The last part is the result. To leave earlier ends no run. timeout bounds the\n" +
		"        wait for the first part.\n",
}

func snake(name string) string { return strings.ReplaceAll(name, ".", "_") }

// pythonParams are a function's parameters. What is required and the first of the
// rest may be given by their place, all else by name.
func pythonParams(spec gjson.Result) string {
	list, optional := []string{"self"}, 0
	for _, p := range spec.Get("params").Array() {
		name, hint := p.Get("name").Str, pythonHint(p.Get("schema"), nil)
		if p.Get("required").Bool() {
			list = append(list, name+": "+hint)
			continue
		}
		if optional++; optional == 2 {
			list = append(list, "*")
		}
		list = append(list, name+": "+hint+" = None") // all of them take null
	}
	if signature := strings.Join(list, ", "); len(signature) <= 60 {
		return signature
	}
	return "\n        " + strings.Join(list, ",\n        ") + ",\n    "
}

// classes are those of objects, by their schemas, and what was written of them.
type classes struct {
	names map[string]string
	text  bytes.Buffer
}

func pythonResults(list []row) ([]byte, error) {
	c := &classes{names: map[string]string{}}
	for _, m := range list {
		schema, name := m.spec.Get("result.schema"), camel(m.Name)
		if found := c.class(name, schema); found != name {
			fmt.Fprintf(&c.text, "\n\n%s = %s\n", name, found)
		}
	}
	literal := ""
	if bytes.Contains(c.text.Bytes(), []byte("Literal[")) {
		literal = "Literal, "
	}
	head := fmt.Sprintf("# %s\n\"\"\"What the methods return: plain dictionaries, whose members are named here.\"\"\"\n\n"+
		"from typing import Any, Dict, List, %sOptional, TypedDict\n", generated, literal)
	return append([]byte(head), c.text.Bytes()...), nil
}

// class is the class of an object, written after those that it is made of, unless
// there is one like it.
func (c *classes) class(name string, s gjson.Result) string {
	if found, ok := c.names[s.Raw]; ok {
		return found
	}
	c.names[s.Raw] = name
	always, sometimes := "", ""
	s.Get("properties").ForEach(func(key, member gjson.Result) bool {
		hint := pythonHint(member, func(object gjson.Result) string { return c.class(name+camel(key.Str), object) })
		line := "    " + key.Str + ": " + hint + "\n"
		if strings.Contains(s.Get("required").Raw, `"`+key.Str+`"`) {
			always += line
		} else {
			sometimes += line
		}
		return true
	})
	base, total := "TypedDict", ""
	if always != "" && sometimes != "" {
		base = "_" + name
		fmt.Fprintf(&c.text, "\n\nclass %s(TypedDict):\n%s", base, always)
		always = ""
	}
	if always == "" {
		total = ", total=False"
	}
	fmt.Fprintf(&c.text, "\n\nclass %s(%s%s):\n%s", name, base, total, always+sometimes)
	return name
}

// pythonHint is the type hint of a schema. class gives the class of an object; nil
// where objects have none.
func pythonHint(s gjson.Result, class func(gjson.Result) string) string {
	if values := s.Get("enum"); values.Exists() {
		return "Literal[" + strings.NewReplacer("[", "", "]", "", ",", ", ", "null", "None").Replace(values.Raw) + "]"
	}
	kinds := s.Get("type").Array()
	if len(kinds) == 2 { // the other is null
		return "Optional[" + pythonOf(kinds[0].Str, s, class) + "]"
	}
	if len(kinds) == 0 {
		return "Any"
	}
	return pythonOf(kinds[0].Str, s, class)
}

func pythonOf(kind string, s gjson.Result, class func(gjson.Result) string) string {
	switch kind {
	case "string":
		return "str"
	case "boolean":
		return "bool"
	case "integer":
		return "int"
	case "number":
		return "float"
	case "array":
		return "List[" + pythonHint(s.Get("items"), class) + "]"
	}
	if values := s.Get("additionalProperties"); values.IsObject() {
		return "Dict[str, " + pythonHint(values, class) + "]"
	}
	if class == nil || !s.Get("properties").Exists() {
		return "Dict[str, Any]"
	}
	return class(s)
}
