package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/oklog/run"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"nexus.internal/bridge"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/cmd/internal/greeting"
	"nexus.internal/cmd/internal/sessionlog"
	"nexus.internal/protocol/notes"
	"nexus.internal/protocol/proctree"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/tracing"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/broker"
	"nexus.internal/supervisor/proc"
	"nexus.internal/supervisor/stdio"
	"nexus.internal/supervisor/store"
)

// defaultApproval is how long a permission request waits (SPEC §6.3).
const defaultApproval = 5 * time.Minute

// serveOptions are the flags of serve.
type serveOptions struct {
	host       string
	port       int
	child      string
	foreign    bool // child was named: it may be another program than ours
	durability string
	scenario   string
	drain      time.Duration
	approval   time.Duration
	rate       uint32 // if rated
	rated      bool
	spares     uint32 // if spared
	spared     bool
	signed     bool
	cluster    clusterOptions
	alone      bool // also where the home is of a machine of a cluster
	remote     remoteOptions
	pprof      bool
	log        logOptions
	logDir     string // "" leaves it to the configuration
	rawLog     bool
	// logSessions logs sessions if the configuration does not say whether to.
	logSessions bool
}

func serveCommand(app *cli.App) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve [PORT]",
		Short: "Run the server in the foreground",
		Long: "Run the server in the foreground until SIGINT, SIGTERM or nexus-rpc shutdown.\n" +
			"It listens on PORT, else --port, else $NEXUS_PORT, else 8765, whatever the home; port 0 takes a free one.\n" +
			"Turns that run or wait may finish (--drain-timeout); a second signal ends the server at once.\n" +
			"Under systemd (Type=notify) it reports when it is ready, that it lives, and that it ends.",
		Args: cli.Args(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := app.CheckPort(0); err != nil {
				return err
			}
			o.port = app.Port
			if len(args) == 1 {
				port, err := strconv.ParseUint(args[0], 10, 16)
				if err != nil {
					return cli.Usage("PORT must be from 0 to 65535, not %q", args[0])
				}
				if cmd.Flags().Changed("port") && int(port) != app.Port {
					return cli.Usage("PORT %d and --port %d differ", port, app.Port)
				}
				o.port = int(port)
			}
			if err := httpd.CheckLoopback(o.host); err != nil {
				return cli.Usage("--host: %v", err)
			}
			if o.durability != "" && o.durability != "turn" && o.durability != "os" {
				return cli.Usage("--durability must be turn or os, not %q", o.durability)
			}
			if o.drain < 0 {
				return cli.Usage("--drain-timeout must not be negative")
			}
			if o.approval <= 0 {
				return cli.Usage("--approval-timeout must be more than 0")
			}
			if o.spares > config.MaxSpares {
				return cli.Usage("--spares must not be more than %d", config.MaxSpares)
			}
			if err := o.cluster.complete(cmd.Flags()); err != nil {
				return err
			}
			if o.alone && o.cluster.on() {
				return cli.Usage("--alone is for a server of no cluster")
			}
			if err := o.remote.complete(); err != nil {
				return err
			}
			o.rated, o.spared = cmd.Flags().Changed("rate"), cmd.Flags().Changed("spares")
			proctree.ExecWithCoarseTimers()
			uuid.EnableRandPool() // ids of requests, which are no secrets: one system call for sixteen
			runtime.UnlockOSThread()
			return serve(cmd.Context(), app, o)
		},
	}
	cmd.Flags().StringVar(&o.host, "host", "127.0.0.1", "address to listen on: 127.0.0.1, localhost or ::1")
	cmd.Flags().StringVar(&o.child, "child", "", "path of nexus-child (default: beside nexus, then on PATH)")
	cmd.Flags().StringVar(&o.durability, "durability", "", "how journals are saved: turn (synced, the default) or os")
	cmd.Flags().StringVar(&o.scenario, "scenario", "", "scenario file that the offline model plays")
	cmd.Flags().DurationVar(&o.drain, "drain-timeout", bridge.DefaultDrainTimeout, "how long running turns may continue when the server is asked to end")
	cmd.Flags().DurationVar(&o.approval, "approval-timeout", defaultApproval, "how long a permission request waits before its call is denied")
	cmd.Flags().Uint32Var(&o.rate, "rate", 0, "requests a minute that each key may make; 0 is no limit (default: the configuration's)")
	cmd.Flags().Uint32Var(&o.spares, "spares", 0, "processes that are started before there is an agent for them; 0 for none (default: the configuration's, else 1; none with --child)")
	cmd.Flags().BoolVar(&o.alone, "alone", false, "serve the home of a machine of a cluster without the others: what agents do meanwhile is set aside where another machine has had them")
	cmd.Flags().BoolVar(&o.signed, "require-signatures", false, "refuse requests that are not signed")
	cmd.Flags().BoolVar(&o.pprof, "pprof", false, "answer requests for profiles of the server at the unix socket run/pprof in its home")
	o.log.flags(cmd.Flags())
	cmd.Flags().StringVar(&o.logDir, "log-dir", "", "log the sessions of all agents in `DIR`, which only you may enter (default: the configuration's logs, else none)")
	cmd.Flags().BoolVar(&o.logSessions, "log-sessions", false, "log the sessions of all agents, unless the configuration says whether to")
	cmd.Flags().BoolVar(&o.rawLog, "raw-log", false, "log sessions with every event, as JSON lines")
	o.remote.flags(cmd.Flags())
	o.cluster.flags(cmd.Flags())
	cli.Without(cmd, "a server makes a key of its own and prints its address and the path of that key", "api-key", "server", "ca", "json", "output")
	flagUsage(cmd, "port", "port to listen on, the same as PORT (default: $NEXUS_PORT, then 8765)")
	return cmd
}

// access is what the server lets in, by the configuration and the flags.
func (o serveOptions) access(cfg *config.Config) httpd.AccessOptions {
	said := cfg.Server
	if o.rated {
		said.RequestsPerMinute = uint64(o.rate)
	}
	return httpd.AccessOptions{
		AllowedOrigins:    said.AllowedOrigins,
		RequestsPerMinute: int(said.RequestsPerMinute),
		RequireSignatures: said.RequireSignatures || o.signed,
	}
}

// spareCount is how many processes wait to become agents, by the configuration and the
// flags.
func (o serveOptions) spareCount(cfg *config.Config) int {
	switch {
	case o.foreign:
		return 0
	case o.spared:
		return int(o.spares)
	case cfg.Server.Spares != nil:
		return int(*cfg.Server.Spares)
	default:
		return config.DefaultSpares
	}
}

// check finds what the server needs, and refuses what it is not to have, before anything is made.
func (o *serveOptions) check(app *cli.App) (*config.Config, error) {
	cfg, err := app.LoadConfig("")
	if err != nil {
		return nil, err
	}
	if cfg.APIKey != "" {
		return nil, cli.Usage("NEXUS3_API_KEY is for clients, and a server makes a key of its own: start it without that variable")
	}
	if err := o.checkHome(cfg.Home); err != nil {
		return nil, err
	}
	if err := o.find(); err != nil {
		return nil, err
	}
	return cfg, o.checkLogs(cfg)
}

// serve runs a server until it is asked to end and everything has ended.
func serve(ctx context.Context, app *cli.App, o serveOptions) (err error) {
	cfg, err := o.check(app)
	if err != nil {
		return err
	}
	at, err := listen(ctx, o, string(cfg.Home))
	if err != nil {
		return err
	}
	defer at.close()
	port := at.local.Addr().(*net.TCPAddr).Port
	if err := cfg.Home.MakeDirs(); err != nil { // only now: a start that is refused leaves no home
		return err
	}
	lines, log, err := o.log.open(app.Stderr, cfg.Home)
	if err != nil {
		return err
	}
	defer lines.Flush() // whoever reads them holds nobody up

	sweep := func(ctx context.Context) error { return safefile.SweepDirs(ctx, cfg.Home.ScratchDir()) }
	room := func() error { return safefile.Probe(string(cfg.Home), 64<<10) }
	if room() != nil {
		warnOfLeft(sweep(ctx), log) // the lock and the guard's record need room
	}
	held, logs, err := claimHome(ctx, cfg, port, app.Version, o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release(), closeLogs(logs)) }()
	if err := makeThreads(spareThreads); err != nil {
		return err
	}
	defer runtime.KeepAlive(reserveHeap())
	guard, err := newGuard(cfg, log)
	if err != nil {
		return err
	}
	// What a killed server left, and what killed agents of this one leave.
	lastSweep := startSweep(sweep, room, log)
	defer func() {
		err = errors.Join(err, guard.Close())
		lastSweep()
	}()
	machines, err := enterCluster(ctx, o.cluster, cfg, o.log.level.String(), guard, log)
	if err != nil {
		return err
	}
	defer machines.close()
	kept, err := openFiles(cfg, port, o, machines, logs, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.close()) }()
	trace, endTrace := exportTraces(ctx, app.Version, log)
	defer endTrace()
	asked, ask := context.WithCancel(ctx)
	defer ask()
	current := newConfiguration(app, o, log)
	ended := onSignal{ask: ask, config: current, keys: kept.keys}.watch(asked)
	defer ended()
	group, err := assemble(asked, ask, assembly{
		o: o, cfg: cfg, config: current, homeLock: held, at: at, files: kept, guard: guard, log: log, trace: trace,
		version: app.Version, machines: machines,
	})
	if err != nil {
		return err
	}
	log.Info("server started", zap.String("address", at.local.Addr().String()), zap.Int("pid", os.Getpid()), zap.String("child", o.child))
	if err := greeting.Write(app.Stdout, at.local.Addr().String(), at.remoteURL(), shownPath(cfg.Home.KeyPath(port))); err != nil {
		log.Warn("announce the server", zap.Error(err))
	}
	return untilAsked(group, log)
}

// untilAsked runs the parts of the server until it is asked to end, or one of them fails.
func untilAsked(group *run.Group, log *zap.Logger) error {
	if err := group.Run(); err != nil && !errors.Is(err, errAsked) {
		return err
	}
	log.Info("server stopped")
	return nil
}

// heapFloor counts as bytes in use, of which heapGrowth percent may be allocated between two garbage
// collections. A small heap would be collected after each hundred sends, and each hundredth
// would wait for it. It is never written, so it takes no memory; what is not collected does, and
// that of a thousand agents would be as much again as what they use.
const (
	heapFloor  = 16 << 20
	heapGrowth = 50
)

// reserveHeap returns the floor, which counts as long as somebody has it.
func reserveHeap() []byte {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(heapGrowth)
	}
	return make([]byte, heapFloor)
}

// errAsked ends the group where nothing went wrong.
var errAsked = errors.New("asked to end")

// assembly is what the actors are made of.
type assembly struct {
	o        serveOptions
	cfg      *config.Config
	homeLock *cli.HomeLock
	config   *configuration
	at       listeners
	files    *files
	guard    *proc.Guard
	log      *zap.Logger
	trace    tracing.Start
	version  string
	machines *membership
}

// assemble makes the parts of a server and their actors, which end once asked does;
// ask ends it.
func assemble(asked context.Context, ask context.CancelFunc, a assembly) (*run.Group, error) {
	kept := sessions.Local(string(a.cfg.Home), a.o.durability == "os", a.log)
	catalogue := sessions.New(string(a.cfg.Home), kept)
	if err := a.config.begin(a.cfg); err != nil {
		return nil, err
	}
	models, err := newBroker(a.config.settings(), kept, a.trace, a.log)
	if err != nil {
		return nil, err
	}
	spares := stdio.NewSpares(a.config, a.log, a.guard)
	agents := &stdio.Launcher{
		CommandLine: &childFlags{
			child: a.o.child, personal: copyPath(a.cfg), config: a.config, sessions: catalogue,
			durability: a.o.durability, scenario: a.o.scenario, approval: a.o.approval, logLevel: a.o.log.childLevel(),
			private: slices.Concat(a.o.cluster.private(), a.o.remote.private(), a.o.privateLogs(a.cfg)),
		},
		Log: a.log, Guard: a.guard, Spares: spares,
	}
	sup := supervisor.New(supervisor.Options{
		Launcher: models.Launcher(agents),
		Store:    a.machines.store(a.cfg, kept, catalogue),
		Log:      a.log,
		Trace:    a.trace,
	})
	if a.machines != nil {
		if err := a.machines.join(sup, a.version); err != nil {
			return nil, errors.Join(err, models.Close())
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		a.log.Warn("find the server's directory", zap.Error(err))
	}
	recorder, err := a.files.recorder(a.cfg, a.o, sup, kept, catalogue, a.log)
	if err != nil {
		return nil, errors.Join(err, models.Close())
	}
	probe := auth.Generate()
	front, err := bridge.New(bridge.Options{
		Supervisor:         sup,
		Runtime:            programs{&admission{a.config, catalogue, a.o.scenario != "", dir, models}, newCheckers(a.o.child, a.config, a.cfg, a.guard, a.log)},
		Store:              agentStore{kept, models},
		Status:             status{home: string(a.cfg.Home), lock: a.homeLock, sessions: catalogue, config: a.config, models: models, spares: spares, logs: recorder, machines: a.machines, agents: sup, version: a.version},
		Sessions:           catalogue,
		Machines:           a.machines.machines(),
		Keys:               a.files.keys,
		Addr:               a.at.local.Addr().String(),
		Remote:             a.at.remote,
		Log:                a.log,
		Trace:              a.trace,
		Audit:              a.files.audit,
		Signatures:         a.files.signatures,
		Settings:           a.config.settings().front,
		Version:            a.version,
		Guard:              a.guard.Mechanisms().String(),
		Probe:              probe,
		MaxUnauthenticated: maxUnauthenticated(),
		DrainTimeout:       max(a.o.drain, 1), // 0 would be the default
		Notes:              notes.OpenFile(string(a.cfg.Home)),
		PlansDir:           a.cfg.Home.PlansDir(),
	})
	if err == nil {
		err = a.machines.answer(front, a.version)
	}
	if err != nil {
		return nil, errors.Join(err, models.Close())
	}
	a.config.serve(models, front, spares)
	return a.actors(asked, ask, wiring{front: front, sup: sup, spares: spares, models: models, kept: kept, probe: probe, logs: recorder}), nil
}

// wiring are what a server consists of.
type wiring struct {
	front  *bridge.Server
	sup    *supervisor.Supervisor
	spares *stdio.Spares
	models *broker.Broker
	kept   *store.Local
	probe  auth.Key             // by which the server asks itself
	logs   *sessionlog.Recorder // nil if sessions are not logged
}

// actors wires the parts. Interrupts only cancel; the façade's actor drains, the
// supervisor's waits for that before it stops the agents, and the broker's until they
// have.
func (a assembly) actors(asked context.Context, ask context.CancelFunc, p wiring) *run.Group {
	group := &run.Group{}
	group.Add(func() error {
		select {
		case <-asked.Done():
		case <-p.front.Draining():
		}
		return errAsked
	}, func(error) { ask() })

	group.Add(func() error { return a.machines.watch(asked) }, func(error) { ask() })

	serving, stopServing := context.WithCancel(context.WithoutCancel(asked))
	supervising, stopSupervising := context.WithCancel(context.WithoutCancel(asked))
	group.Add(func() error {
		defer stopSupervising()
		return p.front.Serve(serving, a.at.local)
	}, func(error) { stopServing() })
	brokering, stopBrokering := context.WithCancel(context.WithoutCancel(asked))
	group.Add(func() error {
		defer stopBrokering()
		defer p.kept.Close() // after the records of the agents
		var keeping sync.WaitGroup
		defer keeping.Wait()
		keeping.Go(func() { p.spares.Run(supervising) })
		keeping.Go(func() {
			<-supervising.Done()
			a.machines.hurry()
		})
		if p.logs != nil {
			logging, endLogs := context.WithCancel(context.WithoutCancel(asked))
			defer endLogs() // once the agents have ended
			keeping.Go(func() { p.logs.Run(logging) })
		}
		return p.sup.Run(supervising)
	}, func(error) {}) // ends once the façade's actor has
	group.Add(func() error {
		return p.models.Run(brokering)
	}, func(error) {}) // ends once the supervisor's actor has: its children still ask
	teller := sdNotifier{address: a.at.local.Addr().String(), probe: p.probe, drain: a.o.drain, log: a.log.Named("notify")}
	group.Add(func() error {
		return teller.run(asked, brokering)
	}, func(error) {}) // ends with the broker's
	return group
}

// checkHome refuses a home if others have what is in it: agents would be in two places.
func (o *serveOptions) checkHome(home config.Home) error {
	if cluster, machine := home.Machine(); cluster != "" && !o.cluster.on() && !o.alone {
		return fmt.Errorf("%s is the home of the machine %s of the cluster %s, and the others may have its agents by now: serve it as that machine, by --cluster-files DIR or as it was served before; or by --alone, and what agents do meanwhile is set aside where another machine has had them",
			home, machine, cluster)
	}
	return nil
}

// find makes the paths of the child and of the scenario absolute.
func (o *serveOptions) find() (err error) {
	o.foreign = o.child != ""
	if o.child, err = findChild(o.child); err != nil {
		return err
	}
	o.scenario, err = findScenario(o.scenario)
	return err
}
