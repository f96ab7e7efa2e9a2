package codecheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"nexus.internal/child/sandbox"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
)

const (
	maxRequest     = 8 << 20 // bytes: 1 MiB of code, each byte of which JSON may write as six
	maxOutput      = 1 << 20 // bytes of a checker's output that are read
	maxDiagnostics = 200
	maxMessage     = 1 << 10 // bytes of one message
)

// Serve reads a request and writes the answer, each one JSON object. The error is
// of the pipes, or of a request that cannot be read.
func Serve(ctx context.Context, in io.Reader, out io.Writer, environ []string) error {
	text, err := io.ReadAll(io.LimitReader(in, maxRequest+1))
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	var r protocol.CodeCheck
	if len(text) > maxRequest {
		return fmt.Errorf("read the request: more than %d bytes", maxRequest)
	}
	if err := strict.Unmarshal(text, &r, strict.RejectUnknown); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	var answer protocol.CodeAnswer
	result, err := Check(ctx, r, environ)
	if failure, ok := errors.AsType[*protocol.CodeError](err); ok {
		answer.Failure = failure
	} else if err != nil {
		answer.Failure = &protocol.CodeError{Kind: protocol.CheckerFailed, Message: err.Error()}
	} else {
		answer.Result = &result
	}
	return json.MarshalWrite(out, answer)
}

// Check has the code looked at by the first checker of its language that is
// there, as environ's PATH has them. The error is a *protocol.CodeError where it is the
// request's, or the machine's.
func Check(ctx context.Context, r protocol.CodeCheck, environ []string) (protocol.CodeResult, error) {
	language := strings.ToLower(r.Language)
	if known, ok := aliases[language]; ok {
		language = known
	}
	tools, ok := languages()[language]
	if !ok {
		return protocol.CodeResult{}, &protocol.CodeError{Kind: protocol.UnknownLanguage, Message: fmt.Sprintf("%.40q is none of %s", r.Language, strings.Join(Languages(), ", "))}
	}
	var wanted []string
	for _, t := range tools {
		if t.program == "" {
			return finish(protocol.CodeResult{Checker: protocol.CodeChecker{Name: t.name, Version: "built in", Command: []string{}}, Diagnostics: t.diagnostics(r.Code)}, r, t), nil
		}
		if t.fragments && !isFragment(r.Code) {
			continue
		}
		program := find(t.program, environ)
		if t.program == ofServer {
			program = r.Server
		}
		if program != "" {
			return t.check(ctx, r, program, environ)
		}
		if !t.fragments { // its program is among those of the others
			wanted = append(wanted, t.program)
		}
	}
	return protocol.CodeResult{}, &protocol.CodeError{Kind: protocol.MissingChecker, Message: fmt.Sprintf("no checker for %s is on this machine: install %s", language, strings.Join(wanted, " or "))}
}

// Languages are the names of the languages that are known, sorted.
func Languages() []string {
	var names []string
	for name := range languages() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// check runs the checker, and once more where its first answer is not the last.
func (t tool) check(ctx context.Context, r protocol.CodeCheck, program string, environ []string) (protocol.CodeResult, error) {
	if t.forms != nil {
		return t.checkBothForms(ctx, r, program, environ)
	}
	first, err := t.run(ctx, r, program, environ)
	if err != nil || t.grammar == nil {
		return first, err
	}
	missing := missingImports(r.Code, first.Diagnostics)
	if program = find(t.grammar.program, environ); program == "" || missing == nil {
		return first, nil
	}
	second, err := t.grammar.run(ctx, r, program, environ)
	if err != nil {
		return protocol.CodeResult{}, err
	}
	second.Diagnostics = append(missing, second.Diagnostics...)
	return finish(second, r, *t.grammar), nil
}

// checkBothForms has the code read in the form that it seems to have, and in the other one
// where that was not it.
func (t tool) checkBothForms(ctx context.Context, r protocol.CodeCheck, program string, environ []string) (protocol.CodeResult, error) {
	likely := 0
	if regexp.MustCompile(t.isSecond).MatchString(r.Code) {
		likely = 1
	}
	wrong := regexp.MustCompile(t.wrongForm)
	first, err := t.as(likely).run(ctx, r, program, environ)
	if err != nil || !slices.ContainsFunc(first.Diagnostics, func(d protocol.CodeDiagnostic) bool { return isError(d, wrong) }) {
		return first, err
	}
	second, err := t.as(1-likely).run(ctx, r, program, environ)
	if err == nil && t.keepFirst && !second.Valid {
		return first, nil
	}
	return second, err
}

func (t tool) as(form int) tool {
	of := t.forms[form]
	t.file, t.before, t.after = of.file, of.before, of.after
	t.args = append(slices.Clone(of.args), t.args...)
	return t
}

func (t tool) run(ctx context.Context, r protocol.CodeCheck, program string, environ []string) (protocol.CodeResult, error) {
	dir, err := makeDir()
	if err != nil {
		return protocol.CodeResult{}, err
	}
	defer func() { _ = safefile.RemoveBriefly(dir) }() // what is left goes with the server's directory, and the server logs what stays
	if err := os.WriteFile(filepath.Join(dir, t.file), []byte(t.wrapped(r.Code)), 0o600); err != nil {
		return protocol.CodeResult{}, fmt.Errorf("write the code to be checked: %w", err)
	}
	if err := t.configure(dir, r.Rules); err != nil {
		return protocol.CodeResult{}, err
	}
	cache, err := t.cacheDir(r.Cache, dir)
	if err != nil {
		return protocol.CodeResult{}, err
	}
	version := commandResult{}
	if t.version != nil {
		version, err = t.runCommand(ctx, program, dir, cache, environ, t.version)
		if err == nil && version.code != 0 { // one that works says its version
			err = t.broken(program, version)
		}
		if err != nil {
			return protocol.CodeResult{}, err
		}
	}
	if t.versionFile != "" {
		version.text = besides(program, t.versionFile)
	}
	args := slices.Clone(t.args)
	if t.rules != "" && t.rules != rulesInConfig && len(r.Rules) > 0 {
		args = append(args, t.rules+strings.Join(r.Rules, ","))
	}
	args = append(args, t.file)
	found, err := t.runCommand(ctx, program, dir, cache, environ, args)
	if err != nil {
		return protocol.CodeResult{}, err
	}
	result := protocol.CodeResult{
		Checker:     protocol.CodeChecker{Name: t.name, Version: textcut.Clip(versionLine(version.text), maxMessage), Command: append([]string{t.program}, args...)},
		Diagnostics: t.unwrapped(r.Code, t.diagnostics(found.text)),
	}
	switch {
	case len(result.Diagnostics) > 0 || found.code == 0:
	case found.code == notExecuted || found.code == notFound:
		return protocol.CodeResult{}, t.broken(program, found)
	default:
		// It says no, and in words that are not understood: they are the fault.
		result.Diagnostics = []protocol.CodeDiagnostic{{Severity: "error", Message: textcut.Clip(strings.TrimSpace(found.text), maxMessage)}}
	}
	return finish(result, r, t), nil
}

// besides is the first line of a file that is found from a program's directory, without the
// links to the program; "" if there is none.
func besides(program, file string) string {
	path, err := filepath.EvalSymlinks(program)
	if err != nil {
		return ""
	}
	f, err := os.Open(filepath.Join(filepath.Dir(path), file))
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxMessage)) // what is read says enough
	first, _, _ := strings.Cut(string(text), "\n")
	return first
}

// configure writes the checker's configuration, if it has one.
func (t tool) configure(dir string, rules []string) error {
	if t.config == "" {
		return nil
	}
	asked, err := json.Marshal(append([]string{}, rules...))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, t.configFile), []byte(strings.Replace(t.config, "RULES", string(asked), 1)), 0o600)
}

// versionLine is the line of what a program says of itself that has its version: the first with a
// digit (shellcheck's second), or else the first.
func versionLine(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	for line := range strings.Lines(text) {
		if strings.ContainsAny(line, "0123456789") {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(first)
}

// finish fills in what follows from the diagnostics and the rules.
func finish(result protocol.CodeResult, r protocol.CodeCheck, t tool) protocol.CodeResult {
	if len(result.Diagnostics) > maxDiagnostics {
		result.Diagnostics, result.Truncated = result.Diagnostics[:maxDiagnostics], true
	}
	result.Valid, result.UncheckedRules = true, []string{}
	for i, d := range result.Diagnostics {
		result.Diagnostics[i].Message = textcut.Clip(d.Message, maxMessage)
		result.Valid = result.Valid && d.Severity != "error"
	}
	if result.Diagnostics == nil {
		result.Diagnostics = []protocol.CodeDiagnostic{}
	}
	if t.rules == "" && r.Rules != nil {
		result.UncheckedRules = r.Rules
	}
	return result
}

// The exit statuses of a shell, and so of a shim, that could not start a program.
const (
	notExecuted = 126
	notFound    = 127
)

func (t tool) broken(program string, r commandResult) error {
	return &protocol.CodeError{Kind: protocol.CheckerFailed, Message: fmt.Sprintf("%s (%s) does not work, exit status %d: %s",
		t.name, program, r.code, textcut.Clip(strings.TrimSpace(r.text), maxMessage))}
}

// commandResult is what a program wrote, and its exit status.
type commandResult struct {
	text string
	code int
}

// cacheDir is the directory in which the checker keeps what it compiled, without links: that one,
// or where it cannot be made or written one in dir, which goes with the check; "" if it keeps
// nothing.
func (t tool) cacheDir(cache, dir string) (string, error) {
	if t.cache == "" {
		return "", nil
	}
	if cache != "" && safefile.Mkdir(cache) == nil && safefile.Probe(cache, 64<<10) == nil {
		return filepath.EvalSymlinks(cache)
	}
	return os.MkdirTemp(dir, "cache-")
}

// runCommand runs the checker, confined, in dir. cache is what cacheDir says.
func (t tool) runCommand(ctx context.Context, program, dir, cache string, environ, args []string) (commandResult, error) {
	env, home := slices.Clone(t.env), variable(environ, "HOME")
	rules := sandbox.Rules{
		Confinement: sandbox.WherePossible, ReadWrite: []string{dir}, ReadOnly: installation(program, home),
		Limits: sandbox.Limits{FileSize: 256 << 20, CPU: 600},
	}
	if home != "" {
		env = append(env, "HOME="+home)
	}
	if cache != "" {
		rules.ReadWrite = append(rules.ReadWrite, cache)
		env = append(env, t.cache+"="+cache)
	}
	if private, err := filepath.EvalSymlinks(variable(environ, "NEXUS_HOME")); err == nil && filepath.IsAbs(private) { // it may lie below /opt, which is the system's
		rules.Blocked, rules.Except = []string{private}, slices.Concat(rules.ReadWrite, rules.ReadOnly)
	}
	p, err := sandbox.Start(ctx, sandbox.Spec{Argv: append([]string{program}, args...), Dir: dir, Env: env, Rules: rules})
	if err != nil {
		return commandResult{}, err
	}
	defer p.Close()
	text, err := io.ReadAll(io.LimitReader(p.Stdout(), maxOutput))
	if len(text) == maxOutput {
		p.Kill() // it says enough
	}
	exit := p.Wait()
	switch {
	case ctx.Err() != nil:
		return commandResult{}, ctx.Err()
	case err != nil:
		return commandResult{}, fmt.Errorf("read what %s says: %w", t.name, err)
	case exit.Signal != 0 && len(text) < maxOutput:
		return commandResult{}, &protocol.CodeError{Kind: protocol.CheckerFailed, Message: fmt.Sprintf("%s was ended by a signal (%v): %s", t.name, exit.Signal, textcut.Clip(string(text), maxMessage))}
	}
	return commandResult{strings.ToValidUTF8(string(text), "\uFFFD"), exit.Code}, nil
}

// makeDir makes a directory for the code, without symbolic links in its path.
func makeDir() (string, error) {
	base, err := filepath.EvalSymlinks(os.TempDir())
	if err != nil {
		return "", fmt.Errorf("find the directory for temporary files: %w", err)
	}
	return os.MkdirTemp(base, "nexus-check-")
}
