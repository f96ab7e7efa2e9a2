package generate_test

import (
	"bytes"
	"fmt"
	"slices"
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
	class, about string
	def, await   string // of a method
	stream       string // what a streaming method returns, of its parts
	imported     string
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

func pythonMethods(list []row, s shape) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\"\"\"%s\"\"\"\n\n", generated, s.about)
	fmt.Fprintf(&b, "from typing import Any, Dict, %s, List, Literal, Optional, Union, cast\n\nfrom . import params, results\nfrom .core import CreatePlanPart, ExecuteTaskPart, Part\nfrom .events import PlanPart\n\n\n", s.imported)
	hint := paramHint(list)
	fmt.Fprintf(&b, "class %s:\n    \"\"\"%s\"\"\"\n\n    %s _call(self, method: str, given: Dict[str, Any]) -> Any:\n"+
		"        raise NotImplementedError\n\n    def _stream(self, method: str, given: Dict[str, Any]) -> Any:\n"+
		"        raise NotImplementedError\n", s.class, s.about, s.def)
	for _, m := range list {
		result := "results." + camel(m.Name)
		fmt.Fprintf(&b, "\n    %s %s(%s) -> %s:\n        \"\"\"%s.\"\"\"\n        return cast(%s, %sself._call(%q, locals()))\n",
			s.def, snake(m.Name), pythonParams(m.spec, hint), result, m.Summary, result, s.await, m.Name)
		if m.Stream != nil {
			result := fmt.Sprintf(s.stream, aboutStreams[m.Name].part)
			fmt.Fprintf(&b, "\n    def %s_stream(%s) -> %s:\n        \"\"\"%s.\n\n%s        \"\"\"\n        return cast(%s, self._stream(%q, locals()))\n",
				snake(m.Name), pythonParams(m.spec, hint), result, aboutStreams[m.Name].summary, aboutStreams[m.Name].python, result, m.Name)
		}
	}
	return b.Bytes(), nil
}

func snake(name string) string { return strings.ReplaceAll(name, ".", "_") }

// pythonParams are a function's parameters. What is required and the first of the
// rest may be given by their place, all else by name.
func pythonParams(spec gjson.Result, hint func(gjson.Result) string) string {
	list, optional := []string{"self"}, 0
	for _, p := range spec.Get("params").Array() {
		name, hint := p.Get("name").Str, hint(p.Get("schema"))
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

// pythonObjects are the classes of the objects among the parameters.
func pythonObjects(list []row) ([]byte, error) {
	c := newClasses(list)
	for _, m := range list {
		for _, p := range m.spec.Get("params").Array() {
			pythonHint(p.Get("schema"), c.class)
		}
	}
	return c.module("What the methods take: plain dictionaries, whose members are named here."), nil
}

// paramHint gives the type hint of a parameter. A whole object that a method returns
// can be handed on: a plan is.
func paramHint(list []row) func(gjson.Result) string {
	params, results := newClasses(list), newClasses(list)
	for _, m := range list {
		results.class(m.spec.Get("result.schema"))
	}
	return func(s gjson.Result) string {
		if kinds := s.Get("type").Array(); len(kinds) > 0 && kinds[0].Str == "object" && s.Get("properties").Exists() {
			name := params.class(s)
			hint := "params." + name
			if results.taken[name] {
				hint = "Union[" + hint + ", results." + name + "]"
			}
			if len(kinds) == 2 {
				hint = "Optional[" + hint + "]"
			}
			return hint
		}
		return pythonHint(s, func(object gjson.Result) string { return "params." + params.class(object) })
	}
}

// classes are those of objects, by the titles of their schemas, and what was written
// of them.
type classes struct {
	names   map[string]string // by the members
	taken   map[string]bool
	results map[string]bool // the titles of what methods return
	text    bytes.Buffer
	// elsewhere are those of the module results, if they are not written again; nil if
	// they are.
	elsewhere *classes
}

func newClasses(list []row) *classes {
	c := &classes{names: map[string]string{}, taken: map[string]bool{}, results: map[string]bool{}}
	for _, m := range list {
		c.results[m.spec.Get("result.schema.title").Str] = true
	}
	return c
}

func pythonResults(list []row) ([]byte, error) {
	c := newClasses(list)
	for _, m := range list {
		name := camel(m.Name)
		if found := c.class(m.spec.Get("result.schema")); found != name {
			fmt.Fprintf(&c.text, "\n\n%s = %s\n", name, found)
		}
	}
	return c.module("What the methods return: plain dictionaries, whose members are named here."), nil
}

// module is a file of the classes.
func (c *classes) module(about string, imports ...string) []byte {
	for _, name := range []string{"Any", "Dict", "List", "Literal", "Optional", "Union"} {
		if bytes.Contains(c.text.Bytes(), []byte(name+"[")) || name == "Any" {
			imports = append(imports, name)
		}
	}
	imports = append(imports, "TypedDict")
	slices.Sort(imports)
	head := fmt.Sprintf("# %s\n\"\"\"%s\"\"\"\n\nfrom typing import %s\n", generated, about, strings.Join(imports, ", "))
	if c.elsewhere != nil {
		head += "\nfrom . import results\n"
	}
	return append([]byte(head), c.text.Bytes()...)
}

// class is the class of an object, written after those that it is made of, unless
// it was written before. Its name is the schema's title, without the word Result where
// a method returns it.
func (c *classes) class(s gjson.Result) string {
	key := s.Get("properties").Raw + s.Get("required").Raw
	if found, ok := c.names[key]; ok {
		return found
	}
	if c.elsewhere != nil {
		if found, ok := c.elsewhere.names[key]; ok {
			return "results." + found
		}
	}
	name := strings.TrimSuffix(s.Get("title").Str, "Params")
	if c.results[name] {
		name = strings.TrimSuffix(name, "Result")
	}
	if name == "" || c.taken[name] {
		panic(fmt.Sprintf("two kinds of objects have the title %q", name))
	}
	c.names[key], c.taken[name] = name, true
	if s.Get("properties.from").Exists() { // a word that Python has for itself
		var members []string
		s.Get("properties").ForEach(func(key, member gjson.Result) bool {
			members = append(members, key.Raw+": "+pythonHint(member, c.class))
			return true
		})
		fmt.Fprintf(&c.text, "\n\n%s = TypedDict(%q, {%s})\n", name, name, strings.Join(members, ", "))
		return name
	}
	always, sometimes := "", ""
	s.Get("properties").ForEach(func(key, member gjson.Result) bool {
		line := "    " + key.Str + ": " + pythonHint(member, c.class) + "\n"
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

// pythonHint is the type hint of a schema. class gives the class of an object.
func pythonHint(s gjson.Result, class func(gjson.Result) string) string {
	if value := s.Get("const"); value.Exists() {
		return "Literal[" + value.Raw + "]"
	}
	if several := s.Get("anyOf"); several.Exists() {
		var hints []string
		for _, one := range several.Array() {
			if !one.Get("properties.type.not").Exists() { // of a later version
				hints = append(hints, pythonHint(one, class))
			}
		}
		return "Union[" + strings.Join(hints, ", ") + "]"
	}
	if values := s.Get("enum"); values.Exists() {
		return "Literal[" + strings.NewReplacer("[", "", "]", "", ",", ", ", "null", "None").Replace(values.Raw) + "]"
	}
	kinds := s.Get("type").Array()
	if len(kinds) == 2 && kinds[1].Str != "null" {
		return "Union[" + pythonOf(kinds[0].Str, s, class) + ", " + pythonOf(kinds[1].Str, s, class) + "]"
	}
	if len(kinds) == 2 {
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
	if !s.Get("properties").Exists() {
		return "Dict[str, Any]"
	}
	return class(s)
}
