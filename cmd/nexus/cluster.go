package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"nexus.internal/bridge"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/format"
	"nexus.internal/protocol/safefile"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/identity"
	"nexus.internal/supervisor/cluster/members"
	"nexus.internal/supervisor/cluster/register"
	"nexus.internal/supervisor/cluster/replicated"
	"nexus.internal/supervisor/cluster/runner"
	"nexus.internal/supervisor/proc"
	"nexus.internal/supervisor/store"
)

// clusterOptions are the flags by which a server is a machine of a cluster.
type clusterOptions struct {
	identity.Spec
	files       string // as nexus cluster init makes them
	nats        string // servers that are there already
	credentials string
	labels      map[string]string
	maxAgents   uint32
	maxBytes    int64    // of the agents of all machines
	shared      []string // directories; absolute once complete
	program     string   // the path of nexus-cluster; "" with nats
}

func (o *clusterOptions) flags(set *pflag.FlagSet) {
	set.StringVar(&o.Cluster, "cluster", "", "be a machine of the cluster `NAME`")
	set.StringVar(&o.files, "cluster-files", "", "be the machine that `DIR` is for, as nexus cluster init made it; the flags of a cluster say otherwise where they are given")
	set.StringVar(&o.Machine, "machine", "", "`NAME` of this machine in the cluster (default: the name of the host)")
	set.StringVar(&o.Listen, "listen-cluster", "", "`HOST:PORT` where the other machines reach this one")
	set.StringSliceVar(&o.Join, "join", nil, "`HOST:PORT` of each machine of the cluster, of this one, too; may be repeated")
	set.StringVar(&o.nats, "nats", "", "be one by the NATS that is at `URL` already, with JetStream; further URLs after commas")
	set.StringVar(&o.credentials, "nats-creds", "", "`FILE` with the credentials for --nats")
	set.StringToStringVar(&o.labels, "label", nil, "`NAME=VALUE` that tells what this machine is good for; may be repeated")
	set.Lookup("label").DefValue = "" // else the help has it, as []
	set.StringArrayVar(&o.shared, "shared-path", nil, "`DIR` that other machines have at the same place, such as a network's: agents that work in it are taken over by others that say so, too, when this machine is gone; may be repeated")
	set.Int64Var(&o.maxBytes, "cluster-bytes", defaultClusterBytes, "`BYTES` that the machines keep of all agents together, and as many of what is large, the same on each machine; 0 for no bound but their disks (with --nats the default is 0)")
	set.Uint32Var(&o.maxAgents, "max-agents", 0, "agents that this machine takes, as it tells the others; 0 for no bound")
}

// defaultClusterBytes bounds what the machines keep of all agents together.
const (
	defaultClusterBytes = 64 << 30
	minClusterBytes     = 1 << 20
)

// on reports whether the server is a machine of a cluster.
func (o *clusterOptions) on() bool { return o.Cluster != "" || o.files != "" }

// complete takes what the files say, finds the program, and says what is wrong.
func (o *clusterOptions) complete(set *pflag.FlagSet) error {
	if !o.on() {
		for _, name := range []string{"machine", "listen-cluster", "join", "nats", "nats-creds", "label", "max-agents", "cluster-bytes", "shared-path"} {
			if set.Changed(name) {
				return cli.Usage("--%s is of a machine in a cluster: say --cluster NAME or --cluster-files DIR", name)
			}
		}
		return nil
	}
	if o.maxBytes < 0 || o.maxBytes > 0 && o.maxBytes < minClusterBytes {
		return cli.Usage("--cluster-bytes must be 0 or at least %d, not %d", minClusterBytes, o.maxBytes)
	}
	if o.nats != "" && !set.Changed("cluster-bytes") {
		o.maxBytes = 0
	}
	for label, value := range o.labels {
		if err := cluster.CheckLabel(label, value); err != nil {
			return cli.Usage("--label: %v", err)
		}
	}
	var err error
	if o.shared, err = replicated.Shared(o.shared); err != nil {
		return cli.Usage("--shared-path: %v", err)
	}
	if len(o.shared) > cluster.MaxShared {
		return cli.Usage("--shared-path: a machine shares at most %d directories, not %d", cluster.MaxShared, len(o.shared))
	}
	if o.files != "" {
		if err := o.read(); err != nil {
			return err
		}
	}
	if o.Machine == "" {
		host, _ := os.Hostname()
		o.Machine, _, _ = strings.Cut(host, ".")
		if cluster.CheckName("machine", o.Machine) != nil {
			return cli.Usage("the name of the host, %q, is none of a machine: say --machine NAME", host)
		}
	}
	if err := errors.Join(cluster.CheckName("cluster", o.Cluster), cluster.CheckName("machine", o.Machine)); err != nil {
		return cli.Usage("%v", err)
	}
	if o.nats != "" {
		return o.completeNATS()
	}
	if o.credentials != "" {
		return cli.Usage("--nats-creds is for a NATS that is there already: say --nats URL")
	}
	if err := o.checkAddresses(); err != nil {
		return err
	}
	o.program, err = findProgram("nexus-cluster")
	return err
}

// read takes what the files say, but for what flags say.
func (o *clusterOptions) read() error {
	dir, err := filepath.Abs(o.files)
	if err != nil {
		return err
	}
	o.files = dir
	said, err := identity.Read(dir)
	if err != nil {
		return fmt.Errorf("--cluster-files: %w", err)
	}
	for _, of := range []struct{ flag, file *string }{{&o.Cluster, &said.Cluster}, {&o.Machine, &said.Machine}, {&o.Listen, &said.Listen}} {
		if *of.flag == "" {
			*of.flag = *of.file
		}
	}
	if len(o.Join) == 0 {
		o.Join = said.Join
	}
	_, err = identity.TLS(dir, o.Machine)
	return err
}

// private are the files that let whoever reads them do what the server can: of this machine and, as long as they are beside those, of the others and of
// the authority.
func (o *clusterOptions) private() (paths []string) {
	if o.credentials != "" {
		paths = append(paths, o.credentials)
	}
	if o.files == "" {
		return paths
	}
	return append(append(paths, o.files), authorities(withoutLinks(o.files), o.files)...)
}

// authorities are the directories of nexus cluster init in which those of machines lie, with the files of other machines: whoever reads them is any of these.
func authorities(machines ...string) (all []string) {
	for _, dir := range machines {
		if above := identity.MadeIn(dir); above != "" && !slices.Contains(all, above) {
			all = append(all, above)
		}
	}
	return all
}

// withoutLinks is a path without links, or the path where that cannot be told: then it is of no use.
func withoutLinks(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// completeNATS checks the flags beside --nats.
func (o *clusterOptions) completeNATS() error {
	if o.files != "" || o.Listen != "" || len(o.Join) > 0 {
		return cli.Usage("with --nats, the servers of NATS are those that are there: without --cluster-files, --listen-cluster and --join")
	}
	if o.credentials == "" {
		return nil
	}
	var err error
	if o.credentials, err = filepath.Abs(o.credentials); err == nil {
		err = safefile.CheckSecret(o.credentials)
	}
	if err != nil {
		return fmt.Errorf("--nats-creds: %w", err)
	}
	return nil
}

// checkAddresses says what is wrong with where the machines listen.
func (o *clusterOptions) checkAddresses() error {
	if o.files == "" {
		return cli.Usage("whoever joins a cluster can do all that its servers can, so each machine shows a certificate: make them by nexus cluster init, and say --cluster-files DIR; or say --nats URL")
	}
	if o.Listen == "" {
		return cli.Usage("say --listen-cluster HOST:PORT, where the other machines reach this one")
	}
	if err := cluster.CheckJoin(o.Join); err != nil {
		return cli.Usage("--join: %v", err)
	}
	host, _, err := cluster.SplitAddress(o.Listen)
	if err != nil {
		return cli.Usage("--listen-cluster: %v", err)
	}
	// A machine that joins the others alone counts one too few. One that listens at each of its addresses, or is
	// joined by a name, may be among them all the same.
	ip := net.ParseIP(host)
	named := func(address string) bool {
		host, _, _ := cluster.SplitAddress(address) // as it was checked
		return net.ParseIP(host) == nil
	}
	if ip != nil && !ip.IsUnspecified() && !slices.Contains(o.Join, o.Listen) && !slices.ContainsFunc(o.Join, named) {
		return cli.Usage("--join names each machine of the cluster, and this one, %s, is not among them", o.Listen)
	}
	return nil
}

// membership is a server's part in a cluster. A nil one is that of a server that is in none.
type membership struct {
	o       clusterOptions
	home    config.Home
	log     *zap.Logger
	engine  *runner.Runner // nil with a NATS that is there already
	link    *cluster.Link
	system  *cluster.Link    // as the user of the system of NATS; nil with a NATS that is there already
	node    *cluster.Node    // nil before join
	members *members.Members // which machines there are to be; nil before join
	since   time.Time        // a removal from the cluster before it is over
	// register is what all machines have.
	register *register.Register
	kept     *replicated.Store
	later    *format.Later // what it meets of later formats
	cwds     *cwds
	asked    *socket // where backups of the cluster are had, and homes brought in; nil before answer
}

// enterCluster starts what makes this machine one with others; nil if it is to be none.
func enterCluster(ctx context.Context, o clusterOptions, cfg *config.Config, level string, guard *proc.Guard, log *zap.Logger) (*membership, error) {
	if !o.on() {
		return nil, nil
	}
	m := &membership{o: o, home: cfg.Home, log: log.Named("cluster")}
	m.later = format.NewLater(laterLog{m.log})
	if err := m.checkRemoved(); err != nil {
		return nil, err
	}
	if err := m.connect(ctx, cfg, level, guard); err != nil {
		if m.link != nil {
			m.link.Close()
		}
		if m.engine != nil {
			m.engine.Close()
		}
		return nil, err
	}
	var err error
	if m.register, err = register.Open(m.link.NATS(), register.Options{Cluster: o.Cluster, Replicas: m.replicas(), Later: m.later, Log: m.log}); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// laterLog is a [format.Teller].
type laterLog struct{ *zap.Logger }

func (l laterLog) Met(e *format.LaterError) {
	l.Warn("a value of a later format is left as it is", zap.Error(e))
}

// engineSocket is the name of the socket at which the server reaches its nexus-cluster, in run.
const engineSocket = "nats"

// connect starts the engine, unless there is a NATS already, and connects to it.
func (m *membership) connect(ctx context.Context, cfg *config.Config, level string, guard *proc.Guard) (err error) {
	o := m.o
	if o.nats != "" {
		m.link, err = cluster.ConnectTo(o.nats, o.credentials, m.log)
		return err
	}
	said := cluster.EngineOptions{
		Cluster: o.Cluster, Machine: o.Machine, Listen: o.Listen, Join: o.Join, Dir: cfg.Home.ClusterDir(o.Cluster, o.Machine), Socket: cfg.Home.Path("run", engineSocket),
	}
	if o.files != "" {
		said.Certificates = &o.files
	}
	if m.engine, err = runner.Start(ctx, runner.Options{Program: o.program, Level: level, Engine: said, Guard: guard, Log: m.log}); err != nil {
		return err
	}
	if m.link, err = cluster.Connect(m.engine, "", m.log); err != nil {
		return err
	}
	m.system, err = cluster.Connect(m.engine, cluster.SystemUser, m.log.Named("system"))
	return err
}

// since is when this machine got its certificate, or else now.
func (o *clusterOptions) since() (time.Time, error) {
	if o.files == "" {
		return time.Now(), nil
	}
	proof, err := identity.TLS(o.files, o.Machine)
	if err != nil {
		return time.Time{}, err
	}
	return identity.Certified(proof.Certificates[0].Leaf), nil
}

// checkRemoved says that this machine has learnt of its removal before.
func (m *membership) checkRemoved() error {
	removed, err := cluster.ReadRemoved(m.dir())
	if err == nil {
		m.since, err = m.o.since()
	}
	return errors.Join(err, removed.Refuse(m.o.Machine, m.since))
}

// dir is where the engine keeps what it has.
func (m *membership) dir() string { return m.home.ClusterDir(m.o.Cluster, m.o.Machine) }

// follow keeps what is known of which machines there are.
func (m *membership) follow() (err error) {
	o := members.Options{Machine: m.o.Machine, Register: m.register, Since: m.since, Later: m.later, Log: m.log}
	if m.engine != nil {
		o.Joined, o.System, o.Dir = len(m.o.Join), m.system.NATS(), m.dir()
	}
	m.members, err = members.Open(o)
	return err
}

// watch waits until this machine is removed from the cluster, and is the error that says so, or errAsked once ctx has ended.
func (m *membership) watch(ctx context.Context) error {
	var out <-chan struct{}
	if m != nil {
		out = m.members.Out()
	}
	select {
	case <-out:
		return fmt.Errorf("the machine %s was removed from the cluster %s", m.o.Machine, m.o.Cluster)
	case <-ctx.Done():
		return errAsked
	}
}

// replicas is on how many machines what they agree on is kept.
func (m *membership) replicas() int {
	if m.engine == nil {
		return maxReplicas
	}
	return min(maxReplicas, len(m.o.Join))
}

// maxReplicas is on how many machines something is kept at most.
const maxReplicas = 3

// store is where the supervisor keeps records: local's, which other machines have, too.
func (m *membership) store(cfg *config.Config, local *store.Local, catalogue *sessions.Catalogue) supervisor.Store {
	if m == nil {
		return local
	}
	m.cwds = &cwds{catalogue: catalogue, home: cfg.Home, machine: m.o.Machine}
	m.kept = replicated.New(replicated.Options{
		Local: local, Root: cfg.Home.SessionsDir(), Dir: filepath.Join(cfg.Home.ClusterDir(m.o.Cluster, m.o.Machine), "agents"),
		Shared: m.o.shared, MaxBytes: m.o.maxBytes, Dirs: m.cwds, Later: m.later, Log: m.log,
	})
	return m.kept
}

// join has the other machines know this one, and begins to ship what agents save. Store was called.
func (m *membership) join(agents *supervisor.Supervisor, version string) (err error) {
	if err := m.follow(); err != nil {
		return err
	}
	m.node, err = cluster.Join(m.link.NATS(), cluster.Options{
		Cluster: m.o.Cluster, Machine: m.o.Machine, Replicas: m.replicas(), Members: m.members, Labels: m.o.labels, MaxAgents: int(m.o.maxAgents), Agents: agents,
		Shared: m.o.shared, File: filepath.Join(m.home.ClusterDir(m.o.Cluster, m.o.Machine), "machine.json"), Version: version, Later: m.later, Log: m.log,
	})
	if err != nil {
		return err
	}
	m.cwds.agents = agents
	return m.kept.Start(m.node)
}

// answer begins to answer at the socket of the home. Join was called.
func (m *membership) answer(front *bridge.Server, version string) (err error) {
	if m == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /backup", &clusterSaver{kept: m.kept, home: m.home, version: version})
	mux.Handle("POST /import", &clusterImporter{front: front, log: m.log})
	m.asked, err = serveSocket(m.home, clusterSocket, mux, m.log)
	return err
}

// hurry says that the server ends.
func (m *membership) hurry() {
	if m != nil {
		m.kept.Hurry()
	}
}

// close leaves the cluster, and ends all that it started.
func (m *membership) close() {
	if m == nil {
		return
	}
	if m.asked != nil {
		m.asked.close()
	}
	if m.kept != nil {
		m.kept.Close()
	}
	if m.node != nil {
		m.node.Close()
	}
	if m.members != nil {
		m.members.Close()
	}
	if m.register != nil {
		m.register.Close()
	}
	m.link.Close()
	if m.system != nil {
		m.system.Close()
	}
	if m.engine != nil {
		m.engine.Close()
	}
}

// warnings are why the machine does not take part as it should.
func (m *membership) warnings() (all []string) {
	if m == nil || m.node == nil {
		return nil
	}
	if why := m.apart(); why != "" {
		all = []string{"cluster: " + why}
	}
	for _, name := range cluster.Twins(m.node) {
		all = append(all, fmt.Sprintf("cluster: two servers are the machine %s, each of which has the other's agents: end one of them", name))
	}
	for _, met := range m.later.Warnings() {
		all = append(all, "cluster: "+met)
	}
	return all
}

// apart says why the machine takes no part; "" if it does.
func (m *membership) apart() string {
	if m.engine != nil {
		if _, err := m.engine.Ready(); err != nil {
			return err.Error()
		}
	}
	if err := m.node.Check(); err != nil {
		return err.Error()
	}
	if !m.register.Known() {
		return "what the machines keep together is not read yet"
	}
	if !m.members.Counts(m.o.Machine) {
		return "this machine was removed lately and is counted again within five minutes; until then the others must do without it"
	}
	return ""
}
