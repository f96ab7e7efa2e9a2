// Package engine runs a server of NATS with JetStream in this process, as one of a cluster.
//
//	e, err := engine.Start(engine.Options{Name: "farm", Machine: "a", Listen: "10.0.0.1:8766", Join: all, TLS: t, Dir: dir, Socket: path})
//	defer e.Close()
//	link, err := cluster.Connect(e, "", log)
//
// It is for a program of its own: a program that links it samples its own processor time each second, from its start.
package engine

import (
	"cmp"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/zap"

	"nexus.internal/supervisor/cluster"
	"nexus.internal/supervisor/cluster/identity"
)

// Options say which machine this is, of which cluster.
type Options struct {
	// Name is the cluster's and Machine this machine's: letters, digits, - and _, at most 64.
	Name, Machine string
	// Listen is where the other machines reach this one, HOST:PORT.
	Listen string
	// Join are the addresses of all machines, this one's, too. A majority of them has to be there.
	Join []string
	// TLS proves the machines to each other: both sides have a certificate. It may be nil where Listen is on loopback.
	TLS *tls.Config
	// Dir is where what the machines agree on is kept.
	Dir string
	// Socket is the path of the unix socket at which it takes clients. Nobody else than the caller makes one there.
	Socket string
	Log    *zap.Logger
}

// maxStore is how many bytes the streams may have together: more than there are. They have bounds of their own, of which each is known on all
// machines alike; a machine that reaches its bound of all would lead and follow none.
const maxStore = 1 << 50

// patience bounds the start: the server may have much to read.
const patience = 30 * time.Second

// check says what is wrong with the options.
func (o *Options) check() error {
	for what, name := range map[string]string{"cluster": o.Name, "machine": o.Machine} {
		if err := cluster.CheckName(what, name); err != nil {
			return err
		}
	}
	if _, _, err := cluster.SplitAddress(o.Listen); err != nil {
		return err
	}
	if o.TLS == nil && !cluster.OnLoopback(o.Listen) {
		return fmt.Errorf("%s is reached by other machines: it needs certificates (nexus cluster init)", o.Listen)
	}
	if err := cluster.CheckJoin(o.Join); err != nil {
		return err
	}
	if o.Dir == "" {
		return errors.New("there is no directory for what the machines agree on")
	}
	if o.Socket == "" {
		return errors.New("there is no socket for clients")
	}
	return nil
}

// server are the options of the server of NATS.
func (o *Options) server(clients *clients) (*server.Options, error) {
	host, port, err := cluster.SplitAddress(o.Listen)
	if err != nil {
		return nil, err
	}
	e := &server.Options{
		ServerName: o.Machine, NoSigs: true,
		DontListen:                 true, // for clients: see front
		CustomClientAuthentication: clients,
		JetStream:                  true, StoreDir: o.Dir, SyncAlways: true, JetStreamMaxStore: maxStore,
		Cluster: server.ClusterOpts{Name: o.Name, Host: host, Port: port, TLSTimeout: 5, NoAdvertise: true},
	}
	if o.TLS != nil {
		mutual := o.TLS.Clone()
		mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, mutual.RootCAs
		mutual.VerifyConnection = o.verify
		e.Cluster.TLSConfig = mutual
	}
	for _, other := range o.Join {
		e.Routes = append(e.Routes, &url.URL{Scheme: "nats-route", Host: other})
	}
	return e, nil
}

// verify refuses a machine that was removed from the cluster after it had got its certificate.
func (o *Options) verify(of tls.ConnectionState) error {
	removed, err := cluster.ReadRemoved(o.Dir)
	if err != nil {
		return err
	}
	machine := of.PeerCertificates[0] // which was verified
	return removed.Refuse(machine.Subject.CommonName, identity.Certified(machine))
}

// clients lets in who knows the secret: as a token, or as the password of [cluster.SystemUser].
type clients struct {
	secret string
	server *server.Server
}

// Check implements [server.Authentication].
func (c *clients) Check(client server.ClientAuthentication) bool {
	said := client.GetOpts()
	if subtle.ConstantTimeCompare([]byte(said.Token+said.Password), []byte(c.secret)) != 1 {
		return false
	}
	if said.Username == cluster.SystemUser {
		client.RegisterUser(&server.User{Username: said.Username, Account: c.server.SystemAccount()})
	}
	return true
}

// Engine is a server of NATS. Its methods may be called from any goroutine.
type Engine struct {
	server *server.Server
	front  *front
	secret string
	log    *engineLog
	watch  watch
}

// Start starts it. It returns once it takes clients, whether the other machines are there or not.
func Start(o Options) (*Engine, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", o.Listen) // the server would try again and again
	if err != nil {
		return nil, fmt.Errorf("the other machines cannot reach this one: %w", err)
	}
	_ = free.Close()
	e := &Engine{secret: rand.Text(), log: &engineLog{log: cmp.Or(o.Log, zap.NewNop()), said: map[string]time.Time{}}}
	e.watch.log = e.log.log
	in := &clients{secret: e.secret}
	options, err := o.server(in)
	if err != nil {
		return nil, err
	}
	if e.server, err = server.NewServer(options); err != nil {
		return nil, fmt.Errorf("start the cluster's server: %w", err)
	}
	in.server = e.server
	if e.front, err = listen(o.Socket, e.log.log); err != nil {
		return nil, err
	}
	e.server.SetLoggerV2(e.log, false, false, false)
	e.start()
	if why := e.log.why(); why != "" {
		e.Close()
		return nil, fmt.Errorf("start the cluster's server: %s", why)
	}
	if !e.server.ReadyForConnections(patience) {
		e.Close()
		return nil, fmt.Errorf("the cluster's server does not start at %s with what is in %s", o.Listen, o.Dir)
	}
	e.front.serve(e.server)
	e.watch.begin(e.server, o.Machine)
	return e, nil
}

// start starts the server of NATS. It reaches for other machines only once it listens for clients, which it does not: so it is told that it does. What waits for that in
// it waits as long as this process lives.
func (e *Engine) start() {
	e.server.Start()
	if e.log.hasGivenUp() {
		return // before it came to that
	}
	listens := make(chan struct{})
	close(listens)
	e.server.StartRouting(listens)
}

// Ready implements [cluster.Engine].
func (e *Engine) Ready() (cluster.EngineReady, error) {
	return cluster.EngineReady{Socket: e.front.path, Token: e.secret}, nil
}

// errNoStorage says that the server keeps nothing any more: it gives up where its disk was full once, and goes on only if it is started again. So does one that learns
// that it was removed.
var errNoStorage = errors.New("its disk is full, or was, or it was removed from the cluster, and it keeps nothing")

// Check says why the server does not keep what the machines agree on.
func (e *Engine) Check() error {
	if !e.server.JetStreamEnabled() {
		return errNoStorage
	}
	if why := e.log.why(); why != "" {
		return errors.New(why)
	}
	return e.watch.why()
}

// Close ends it, and waits for its end. Its clients find out.
func (e *Engine) Close() {
	e.watch.end()
	e.front.close()
	e.server.Shutdown()
	e.server.WaitForShutdown()
	e.front.running.Wait()
}

// sayEvery is how often the same is said at most: a machine that is not let in tries again at once.
const sayEvery = 10 * time.Second

// maxSaid bounds what is remembered as said.
const maxSaid = 1000

// engineLog writes what the server of NATS says into our log, a level lower where it says much.
type engineLog struct {
	log *zap.Logger

	mu      sync.Mutex
	said    map[string]time.Time // by what was said, without numbers
	end     string               // why the server cannot go on; "" while it can
	givenUp bool                 // the server does not start
}

func (l *engineLog) say(level func(string, ...zap.Field), format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if l.isNew(text) {
		level("cluster", zap.String("says", text))
	}
}

// isNew reports whether the like of a text was not said lately: ports and numbers of connections are others each time.
func (l *engineLog) isNew(text string) bool {
	like := strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.said[like]) < sayEvery {
		return false
	}
	if len(l.said) >= maxSaid {
		clear(l.said)
	}
	l.said[like] = now
	return true
}
func (l *engineLog) Noticef(format string, args ...any) { l.say(l.log.Debug, format, args...) }
func (l *engineLog) Warnf(format string, args ...any)   { l.say(l.log.Info, format, args...) }

// Errorf says what has failed. Where that is a write, the server keeps the error (werr) and writes nothing more of that stream or group, whatever the reason was, until it is
// started again. So too many open files, which may be over in a moment, end this process as a full disk does: to go on would be to look well and keep nothing.
func (l *engineLog) Errorf(format string, args ...any) {
	l.say(l.log.Warn, format, args...)
	if strings.Contains(strings.ToLower(format), "critical write error") {
		l.ends(format, args...)
	}
}

// Fatalf is how the server says that it does not start.
func (l *engineLog) Fatalf(format string, args ...any) {
	l.say(l.log.Error, format, args...)
	l.ends(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.givenUp = true
}

func (l *engineLog) hasGivenUp() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.givenUp
}

func (l *engineLog) ends(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = cmp.Or(l.end, fmt.Sprintf(format, args...))
}

func (l *engineLog) why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

func (l *engineLog) Debugf(string, ...any) {}
func (l *engineLog) Tracef(string, ...any) {}
