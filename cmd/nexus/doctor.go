package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"nexus.internal/bridge/homelock"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/mcpfile"
	"nexus.internal/protocol/safefile"
)

// playPatience bounds what doctor has an agent do once.
const playPatience = time.Minute

// doctorCommand is nexus doctor.
func doctorCommand(app *cli.App) *cobra.Command {
	var child string
	var online bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what nexus needs of this machine, of its home and of its providers",
		Long: "Check what nexus needs: its programs, the home with its modes and its room, the configuration, the server,\n" +
			"and whether the kernel confines the programs of agents, by running one. With --online the default model is\n" +
			"asked for a word, which may cost a fraction of a cent. Each finding is ok, warn or fail, with what to do. The\n" +
			"exit status is 1 if one is fail. Nothing is changed.",
		Args: cli.Args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), app, child, online) },
	}
	cmd.Flags().StringVar(&child, "child", "", "path of nexus-child (default: beside nexus, then on PATH)")
	cmd.Flags().BoolVar(&online, "online", false, "ask the default model for a word")
	return cmd
}

// The states of a finding.
const (
	isOK   = "ok"
	isWarn = "warn"
	isFail = "fail"
)

// finding is what doctor has found of one thing.
type finding struct {
	Check string `json:"check"`
	State string `json:"state"` // ok, warn or fail
	Found string `json:"found"`
	Do    string `json:"do,omitzero"` // "" for nothing
}

// doctor collects findings.
type doctor struct {
	app      *cli.App
	cfg      *config.Config // nil if it cannot be read
	findings []finding
}

func (d *doctor) add(check, state, do, format string, args ...any) {
	d.findings = append(d.findings, finding{check, state, fmt.Sprintf(format, args...), do})
}

// errFindings ends doctor with exit status 1: all has been said.
var errFindings = errors.New("something that nexus needs is missing (fail)")

func runDoctor(ctx context.Context, app *cli.App, child string, online bool) error {
	d := &doctor{app: app}
	settled, err := app.Config()
	if err != nil {
		return err
	}
	d.configuration()
	d.home(string(settled.Home))
	d.server(string(settled.Home))
	d.limits()
	if path, err := findChild(child); err != nil {
		d.add("programs", isFail, "install nexus-child beside nexus", "%v", err)
	} else {
		d.programs(ctx, path)
		d.confinement(ctx, path)
		if online && d.cfg != nil {
			d.online(ctx, path)
		}
	}
	failed := slices.ContainsFunc(d.findings, func(f finding) bool { return f.State == isFail })
	if err := d.print(!failed); err != nil {
		return err
	}
	if failed {
		return errFindings
	}
	return nil
}

// print prints the findings: a line each, and one for what to do.
func (d *doctor) print(ok bool) error {
	if d.app.Structured() {
		return d.app.PrintValue(struct {
			OK       bool      `json:"ok"`
			Findings []finding `json:"findings"`
		}{ok, d.findings})
	}
	for _, f := range d.findings {
		if err := d.app.Printf("%-5s %-14s %s\n", f.State, f.Check, f.Found); err != nil {
			return err
		}
		if f.Do != "" {
			if err := d.app.Printf("%21s%s\n", "-> ", f.Do); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *doctor) configuration() {
	cfg, err := d.app.LoadConfig("")
	if err == nil {
		d.cfg = cfg
		_, err = settingsOf(cfg, serveOptions{}, d.app.Environ)
	}
	if err == nil {
		err = mcpfile.Check(cfg.Home.Path("mcp.json"))
	}
	if err != nil {
		d.add("configuration", isFail, "correct it; nexus config check checks it again", "%v", err)
		return
	}
	if len(cfg.Files) == 0 {
		d.add("configuration", isOK, "", "there is none: everything is as it is built in")
	} else {
		d.add("configuration", isOK, "", "%s: no errors", strings.Join(cfg.Files, ", "))
	}
	for _, warning := range cfg.Warnings() {
		d.add("configuration", isWarn, "", "%s", warning)
	}
}

func (d *doctor) home(home string) {
	if err := safefile.CheckHome(home); err != nil {
		d.add("home", isFail, "", "%v", err)
		return
	}
	dir := home
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, err := roomIn(dir)
	const least, little = 100 << 20, 1 << 30
	switch {
	case err != nil:
		d.add("home", isFail, "", "%s: %v", home, err)
	case dir != home:
		d.add("home", isOK, "", "%s is not there yet: the first server makes it (%s: %d MiB free)", home, dir, free>>20)
	case free < least:
		d.add("home", isFail, "make room, or choose another home (--home, NEXUS_HOME)", "%s: %d MiB free", home, free>>20)
	case free < little:
		d.add("home", isWarn, "make room, or choose another home (--home, NEXUS_HOME)", "%s: %d MiB free", home, free>>20)
	default:
		d.add("home", isOK, "", "%s: %d MiB free", home, free>>20)
	}
	keys, _ := filepath.Glob(filepath.Join(home, "*.key")) // the pattern is well-formed
	for _, path := range append(keys, filepath.Join(home, "keys.json")) {
		if info, err := os.Lstat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			d.add("home", isFail, "chmod 600 "+path, "%s has mode %04o: others read the key", path, info.Mode().Perm())
		}
	}
}

func (d *doctor) server(home string) {
	s, err := homelock.Find(home)
	switch {
	case err != nil:
		d.add("server", isFail, "", "%v", err)
	case s.Runs:
		d.add("server", isOK, "", "one of this home runs: process %d, port %d", s.PID, s.Port)
	default:
		d.add("server", isOK, "", "none of this home runs")
	}
}

func (d *doctor) limits() {
	files, watches := limitOfFiles(), numberIn("/proc/sys/fs/inotify/max_user_instances")
	const wanted, instances = 4096, 64
	if files > 0 && files < wanted {
		d.add("limits", isWarn, fmt.Sprintf("raise it to %d or more (ulimit -n, LimitNOFILE): an agent takes 9 of them", wanted), "%d files may be open", files)
	} else {
		d.add("limits", isOK, "", "%d files may be open", files)
	}
	if watches > 0 && watches < instances {
		d.add("limits", isWarn, "sysctl fs.inotify.max_user_instances=128", "%d inotify instances for a user: lists of sessions are read anew each time without one", watches)
	}
}

func (d *doctor) programs(ctx context.Context, path string) {
	ctx, cancel := context.WithTimeout(ctx, playPatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	said := strings.TrimSpace(string(out))
	switch {
	case err != nil:
		d.add("programs", isFail, "install nexus-child again", "%s --version: %v", path, err)
	case !strings.Contains(said+",", " version "+d.app.Version+","):
		d.add("programs", isWarn, "install both of one version", "nexus is %s, and %s says %q", d.app.Version, path, said)
	default:
		d.add("programs", isOK, "", "nexus and nexus-child %s", d.app.Version)
	}
}

// confinement has agents run a program, sandboxed and with named hosts.
func (d *doctor) confinement(ctx context.Context, path string) {
	dir, err := os.MkdirTemp("", "nexus-doctor-")
	if err != nil {
		d.add("confinement", isFail, "", "%v", err)
		return
	}
	defer os.RemoveAll(dir)
	home, work, scenario := filepath.Join(dir, "home"), filepath.Join(dir, "work"), filepath.Join(dir, "scenario.json")
	if err := os.Mkdir(work, 0o700); err != nil {
		d.add("confinement", isFail, "", "%v", err)
		return
	}
	const play = `{"turns":[{"match":"run","steps":[{"tool":{"name":"shell","input":{"command":"echo confined"}}},{"text":"done"}]}]}`
	if err := os.WriteFile(scenario, []byte(play), 0o600); err != nil {
		d.add("confinement", isFail, "", "%v", err)
		return
	}
	for _, one := range []struct{ check, permissions, instead string }{
		{"confinement", `{"preset":"sandboxed"}`, "sandboxed agents run no programs here: use another kernel (5.13 with Landlock, or newer), or trusted agents"},
		{"named hosts", `{"preset":"sandboxed","network":["example.com"]}`, "programs of agents with network run not here: allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or the like)"},
	} {
		// A key is what keeps others from looking into an agent's process, which takes another way to a network.
		a, err := ask(ctx, path, append(d.app.Environ, "NEXUS_HOME="+home, "OPENAI_API_KEY=none"), "run", "--no-session", "--model", "offline", "--cwd", work, "--scenario", scenario, "--permissions", one.permissions)
		switch {
		case err != nil:
			d.add(one.check, isFail, one.instead, "%v", err)
		case !strings.HasPrefix(a.result, "confined\n"):
			d.add(one.check, isWarn, one.instead, "%s", firstLine(a.result))
		default:
			d.add(one.check, isOK, "", "the kernel confines programs")
		}
	}
}

// online asks the default model for a word.
func (d *doctor) online(ctx context.Context, path string) {
	choice, err := d.cfg.Models.Choose(config.Wish{})
	if err != nil {
		d.add("model", isFail, "", "%v", err)
		return
	}
	model := choice.Name + "/" + choice.Model
	a, err := ask(ctx, path, append(d.app.Environ, "NEXUS_HOME="+string(d.cfg.Home)), "Answer with the word: ok", "--no-session", "--provider", choice.Name, "--model", choice.Model)
	switch {
	case err != nil:
		d.add("model", isFail, "", "%s: %v", model, err)
	default:
		d.add("model", isOK, "", "%s answers: %.40q", model, a.text)
	}
}

// asked is what an agent has answered.
type asked struct {
	text   string // of the model
	result string // of its last call
}

// ask has a nexus-child of its own answer one prompt.
func ask(ctx context.Context, path string, env []string, message string, args ...string) (a asked, err error) {
	ctx, cancel := context.WithTimeout(ctx, playPatience)
	defer cancel()
	prompt, err := json.Marshal(protocol.Prompt{ID: "doctor", Message: message, Attachments: []protocol.Attachment{}})
	if err != nil {
		return a, err
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"rpc"}, args...)...)
	cmd.Env, cmd.Stdin = env, bytes.NewReader(append(append([]byte(`{"type":"prompt",`), prompt[1:]...), '\n'))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	said := ""
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var frame struct {
			Type  string `json:"type"`
			OK    *bool  `json:"ok"`
			Error string `json:"error"`
			Event struct {
				Type   string `json:"type"`
				Delta  string `json:"delta"`
				Result string `json:"result"`
			} `json:"event"`
			Command string `json:"command"`
		}
		if json.Unmarshal(lines.Bytes(), &frame) != nil {
			continue
		}
		switch {
		case frame.Event.Type == "text_delta":
			a.text += frame.Event.Delta
		case frame.Event.Type == "toolcall_result":
			a.result = frame.Event.Result
		case frame.Command == "prompt" && !protocol.Value(frame.OK):
			said = frame.Error
		}
	}
	switch {
	case said != "":
		return a, errors.New(said)
	case err != nil && stderr.Len() > 0:
		return a, fmt.Errorf("%w: %s", err, firstLine(stderr.String()))
	}
	return a, err
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// numberIn is the number that a file of the kernel has; 0 if there is none.
func numberIn(path string) (n int) {
	if data, err := os.ReadFile(path); err == nil {
		_, _ = fmt.Sscan(string(data), &n) // 0 where it is none
	}
	return n
}
