package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/probe"
	"nexus.internal/protocol"
)

const probeHelp = `Find out what an agent of another make is and how it behaves, in a minute: its protocol, start-up time, memory,
cancel, what becomes of a turn whose program is killed, what is left of it, and more. The program runs in a home of its
own, against a model that nexus plays itself: no service is asked, and nothing is kept. What is printed ends with the
configuration for such agents.

  nexus probe -- gemini --acp
  nexus probe --json --svg card.svg -- claude`

// probing is nexus probe.
type probing struct {
	app      *cli.App
	child    string
	protocol string
	svg      string
	env      []string
}

// probeCommand is the verb.
func probeCommand(app *cli.App) *cobra.Command {
	p := &probing{app: app}
	cmd := &cobra.Command{
		Use: "probe [FLAGS] -- COMMAND…", DisableFlagsInUseLine: true,
		Short: "Find out what an agent of another make is and how it behaves",
		Long:  probeHelp,
		Args:  cobra.ArbitraryArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args) },
	}
	f := cmd.Flags()
	f.StringVar(&p.child, "child", "", "path of nexus-child (default: beside nexus, then on PATH)")
	f.StringVar(&p.protocol, "protocol", "", "how the program is spoken to (default: found out): "+strings.Join(protocol.ProgramProtocols(), ", "))
	f.StringVar(&p.svg, "svg", "", "write the card as a picture, too, to `FILE`")
	f.StringArrayVar(&p.env, "env", nil, "variable `NAME=VALUE` of the program, in the place of what it would find the played model by; may be repeated")
	return cli.Without(cmd, "it needs neither a server nor a home", "port", "server", "ca", "api-key", "home")
}

func (p *probing) run(ctx context.Context, command []string) error {
	if len(command) == 0 {
		return cli.Usage("name the program, after --: nexus probe -- gemini --acp")
	}
	program := protocol.AgentProgram{Kind: "probed", Protocol: p.protocol, Command: command}
	if p.protocol == "" {
		program.Protocol = protocol.ProgramProtocols()[0]
	}
	if err := program.Check(); err != nil {
		return cli.Usage("%v", err)
	}
	program.Protocol = p.protocol
	for _, pair := range p.env {
		if name, _, ok := strings.Cut(pair, "="); !ok || !protocol.IsVariableName(name) {
			return cli.Usage("--env wants NAME=VALUE")
		}
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return fmt.Errorf("there is no program %s: install it, or name it by its path", command[0])
	}
	if strings.ContainsRune(command[0], filepath.Separator) { // else it is found on PATH; it runs in the probe's own directory, and agents in theirs
		path, err := filepath.Abs(command[0])
		if err != nil {
			return err
		}
		command = slices.Concat([]string{path}, command[1:])
		program.Command = command
	}
	child, err := findChild(p.child)
	if err != nil {
		return err
	}
	card, err := probe.Run(ctx, probe.Options{Child: child, Program: program, Env: p.env, Version: versionOf(ctx, command[0]), Progress: p})
	if err != nil {
		return err
	}
	if p.svg != "" {
		if err := writePicture(card, p.svg); err != nil {
			return err
		}
	}
	if p.app.Structured() {
		return p.app.PrintValue(card)
	}
	lines, err := card.Lines()
	for _, line := range lines {
		err = errors.Join(err, p.app.Printf("%s\n", line))
	}
	return err
}

// Trying implements [probe.Progress].
func (p *probing) Trying(what string) { _ = p.app.Eprintf("nexus: trying %s\n", what) } // a hint

func writePicture(card *probe.Card, path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return card.SVG(file)
}

// versionLine is a line with a version in it.
var versionLine = regexp.MustCompile(`v?[0-9]+\.[0-9]+(\.[0-9]+)?[-+.0-9A-Za-z]*`)

// versionOf is what the program says to --version, as far as a number is in it; "" if it does not
// say within 10 s.
func versionOf(ctx context.Context, program string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, _ := exec.CommandContext(ctx, program, "--version").Output() // many programs know no such flag
	first, _, _ := strings.Cut(string(out), "\n")
	return versionLine.FindString(first)
}
