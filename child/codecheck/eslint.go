package codecheck

import (
	"strings"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
)

// eslintConfig is what eslint is told: the rules that are asked for, or else those that it
// recommends, of which three are warnings, as much of a fragment stands elsewhere or is to come. The names of
// node and of browsers are known. No configuration of a project is read: it is code.
const eslintConfig = `import { realpathSync } from "node:fs";
import { createRequire } from "node:module";

const asked = RULES;
const known = "window document navigator location history localStorage sessionStorage alert confirm prompt self frames Element HTMLElement " +
  "Node NodeList DocumentFragment CustomEvent MouseEvent KeyboardEvent XMLHttpRequest FormData File FileReader Image IntersectionObserver " +
  "MutationObserver ResizeObserver requestAnimationFrame cancelAnimationFrame getComputedStyle matchMedia customElements require __dirname __filename";
const globals = { module: "writable", exports: "writable" };
for (const name of [...Object.getOwnPropertyNames(globalThis), ...known.split(" ")]) globals[name] = "readonly";
const rules = {};
if (asked.length === 0) {
  const { builtinRules } = createRequire(realpathSync(process.argv[1]))("eslint/use-at-your-own-risk");
  for (const [name, rule] of builtinRules) if (rule.meta.docs.recommended) rules[name] = "error";
  for (const name of ["no-empty", "no-undef", "no-unused-vars"]) rules[name] = "warn";
}
for (const name of asked) rules[name] = "error";
export default [{
  files: ["**/*.{cjs,mjs,jsx}"], rules,
  languageOptions: { globals, parserOptions: { ecmaFeatures: { jsx: true } } },
}];
`

// eslint looks at the code in one of the forms.
func eslint(forms ...form) tool {
	return tool{
		name: "eslint", program: "eslint", version: []string{"--version"}, config: eslintConfig, configFile: "eslint.config.mjs", rules: rulesInConfig,
		args: []string{"--config", "eslint.config.mjs", "--format", "json"}, env: []string{"ESLINT_USE_FLAT_CONFIG=true"}, output: eslintJSON,
		forms: forms, isSecond: moduleWord, wrongForm: `^Parsing error`, keepFirst: true,
	}
}

// eslintDiagnostics reads what eslint found in its one file; nil where it says something else.
func eslintDiagnostics(text string) []protocol.CodeDiagnostic {
	var files []struct {
		Messages []struct {
			RuleID   *string `json:"ruleId"`
			Severity int     `json:"severity"` // 2 is an error
			Message  string  `json:"message"`
			Line     int     `json:"line"`
			Column   int     `json:"column"`
		} `json:"messages"`
	}
	if json.Unmarshal([]byte(strings.TrimSpace(text)), &files) != nil {
		return nil
	}
	var found []protocol.CodeDiagnostic
	for _, file := range files {
		for _, m := range file.Messages {
			d := protocol.CodeDiagnostic{Line: m.Line, Column: m.Column, Severity: "warning", Message: m.Message, Rule: protocol.Value(m.RuleID)}
			if m.Severity > 1 {
				d.Severity = "error"
			}
			found = append(found, d)
		}
	}
	return found
}
