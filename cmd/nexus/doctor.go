package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/mcpfile"
	"nexus.internal/protocol/safefile"
)

// playPatience bounds what doctor has an agent do once.
const playPatience = time.Minute

// doctorCommand is nexus doctor.
func doctorCommand(app *cli.App) *cobra.Command {
	var child string
	var online bool
	var o clusterOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what nexus needs of this machine, of its home and of its providers",
		Long: "Check what nexus needs: its programs, the configuration, the home with its modes and its room, keys, the\n" +
			"server, the machines of its cluster, the clock, limits, what the kernel has to guard and to bound processes,\n" +
			"and whether it confines the programs of agents, by running one. With --online a model of each provider that\n" +
			"is used is asked for one token, which may cost a fraction of a cent. Each finding is ok, warn or fail, with\n" +
			"what to do. The exit status is 1 if one is fail. Nothing is changed.",
		Args: cli.Args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), app, child, online, o) },
	}
	cmd.Flags().StringVar(&child, "child", "", "path of nexus-child (default: beside nexus, then on PATH)")
	cmd.Flags().BoolVar(&online, "online", false, "ask a model of each provider for one token")
	cmd.Flags().StringVar(&o.files, "cluster-files", "", "look at the `DIR` that nexus serve has by this flag, too")
	cmd.Flags().StringVar(&o.credentials, "nats-creds", "", "look at the `FILE` that nexus serve has by this flag, too")
	return cli.Without(cmd, "it looks at the server of the home", "port", "server", "ca")
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
	Do    string `json:"do,omitzero"` // "" where it is ok
}

// doctor collects findings.
type doctor struct {
	app      *cli.App
	cfg      *config.Config // nil if it cannot be read
	guard    string         // of the server that runs; "" for none
	findings []finding
}

func (d *doctor) add(check, state, do, format string, args ...any) {
	d.findings = append(d.findings, finding{check, state, fmt.Sprintf(format, args...), do})
}

// errFindings ends doctor with exit status 1: all has been said.
var errFindings = errors.New("something that nexus needs is missing (fail)")

func runDoctor(ctx context.Context, app *cli.App, child string, online bool, o clusterOptions) error {
	d := &doctor{app: app}
	settled, err := app.Config()
	if err != nil {
		return err
	}
	if err := cmp.Or(safefile.CheckHome(string(settled.Home)), homeformat.Check(string(settled.Home))); err != nil { // the others could only say so again
		d.add("home", isFail, "choose another home (--home, NEXUS_HOME), or do what it says as its owner", "%v", err)
	} else {
		d.configuration()
		d.home(string(settled.Home))
		d.keys(string(settled.Home))
		d.server(ctx, string(settled.Home))
		d.clock(string(settled.Home))
	}
	d.clusterFiles(o)
	d.limits()
	d.kernel()
	d.processes()
	if path, err := findChild(child); err != nil {
		d.add("programs", isFail, "install nexus-child beside nexus", "%v", err)
	} else {
		d.programs(ctx, path)
		d.confinement(ctx, path)
		if online && d.cfg != nil {
			d.providers(ctx, path)
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
	if warning := cfg.ModelWarning(); warning != "" {
		d.add("configuration", isWarn, "name another default_model in config.json, or correct the member that is named", "%s", warning)
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
